"""What `passed_on` must compute."""


def doubled(x, **rest):
    return {"kept": x + 1, "out": (x + 1) * 2}
