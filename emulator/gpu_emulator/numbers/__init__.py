"""Numbers as PTX registers hold them: formats, conversions, arithmetic with one rounding."""
