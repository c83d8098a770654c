"""What `one_pass_variance` must write."""


def mean_and_variance(x, **rest):
    return {"mean": x.mean().reshape(1), "variance": x.var(correction=0).reshape(1)}
