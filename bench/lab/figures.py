"""Statistics: pure functions of numbers."""

import math


def mean(values):
    return sum(values) / len(values)


def median(values):
    ordered = sorted(values)
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def median_interval(values, confidence=0.95):
    """Returns two of the values, between which the median of their distribution lies with at least
    this confidence, for any distribution: order statistics, the inverse of the sign test. Returns the
    smallest and the largest value if there are too few.
    """
    ordered = sorted(values)
    count = len(ordered)
    outside, skipped = 0, 0
    while skipped < (count - 1) // 2:
        outside += 2 * math.comb(count, skipped) / 2**count
        if outside > 1 - confidence:
            break
        skipped += 1
    inside = max(skipped - 1, 0)
    return ordered[inside], ordered[count - 1 - inside]


def ratios(ones, others):
    """Returns the ratios of values at the same position."""
    return [one / other for one, other in zip(ones, others)]


def deviation(values):
    """Returns the sample standard deviation."""
    centre = mean(values)
    return math.sqrt(sum((value - centre) ** 2 for value in values) / (len(values) - 1))


def margin(samples):
    """Returns the maximum margin of error of a share at 95 % confidence, in points (nprofile, section
    5.2.1)."""
    return 98 / math.sqrt(samples)


def shares(counts):
    """Returns each count as a share of the sum, in per cent."""
    whole = sum(counts.values())
    return {name: 100 * count / whole for name, count in counts.items()}


def distortion(profile, reference):
    """Returns the sum of the absolute differences of the shares of all functions, in points (csprof,
    section 4.2)."""
    names = profile.keys() | reference.keys()
    return sum(abs(profile.get(name, 0) - reference.get(name, 0)) for name in names)


def chance(reference, samples, reference_samples):
    """Returns the distortion expected by chance alone if both profiles are random samples of the same
    work: each share has a normal error with a mean size of sqrt(2/pi) standard deviations."""
    spread = 1 / samples + 1 / reference_samples
    parts = (share / 100 * (1 - share / 100) for share in reference.values())
    return 100 * math.sqrt(2 / math.pi) * sum(math.sqrt(part * spread) for part in parts)
