"""Triton as a front end: capture, lowering, its IR, its settings, its interpreter."""
