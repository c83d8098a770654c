"""Commands about one failure: bisect, blame, minimize, workaround, report."""
