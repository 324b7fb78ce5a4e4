#!/usr/bin/env python3
"""Writes reference.tsv: the results of scipy, statsmodels and limma (its port in inmoose) for the
statistics of nprof-diff. The tests read this file and need none of these packages.

    python3 -m venv venv && venv/bin/pip install scipy statsmodels inmoose
    venv/bin/python reference.py > reference.tsv
"""
import sys
import numpy as np
import scipy
from scipy import optimize, special, stats
import statsmodels
from statsmodels.stats.proportion import confint_proportions_2indep, proportion_confint
from statsmodels.stats.multitest import multipletests
import inmoose
from inmoose.limma import fitFDist


def line(kind, **fields):
    spell = lambda values: " ".join(repr(float(v)) for v in np.atleast_1d(values))
    print(kind, *(f"{name.rstrip('_')}={spell(values)}" for name, values in fields.items()), sep="\t")


def wilson():
    for x, n, alpha in [(0, 10, .05), (7, 50, .05), (50, 50, .05), (312, 9973, .01)]:
        line("wilson", in_=[x, n, alpha], out=proportion_confint(x, n, alpha, method="wilson"))


def newcombe():
    def interval(x, n, y, m, alpha):
        return confint_proportions_2indep(y, m, x, n, method="newcomb", compare="diff", alpha=alpha)

    for x, n, y, m, alpha in [(48, 80, 56, 70, .05), (0, 1000, 12, 1000, .05), (312, 9973, 401, 9871, .05),
                              (312, 9973, 401, 9871, .001), (0, 10, 0, 20, .05)]:
        grows = y / m > x / n
        end = lambda log: interval(x, n, y, m, np.exp(log))[0 if grows else 1]
        p = np.exp(optimize.brentq(end, np.log(1e-12), np.log(.999), xtol=1e-14)) if x * m != y * n else 1
        line("newcombe", in_=[x, n, y, m, alpha], out=[*interval(x, n, y, m, alpha), p])


def welch():
    few, more, same = [.10, .12, .11], [.13, .15, .14, .16], [.2, .21, .19, .22, .2]
    for base, new, alpha in [(few, more, .05), (few, more, .001), ([1, 2], [5, 9], .05), (same, same, .05)]:
        test = stats.ttest_ind(new, base, equal_var=False)
        low, high = test.confidence_interval(1 - alpha)
        line("welch", base=base, new=new, in_=alpha, out=[low, high, test.pvalue])


def permutation():
    rng = np.random.default_rng(1)

    def statistic(base, new, axis):
        return np.abs(stats.ttest_ind(base, new, axis=axis, equal_var=False).statistic)

    for base, new in [(5, 5), (4, 4), (3, 6), (2, 7)]:
        for shift in [0, 1, 3]:
            a, b = rng.normal(10, 1, base).round(3), rng.normal(10 + shift, 1, new).round(3)
            test = stats.permutation_test((a, b), statistic, permutation_type="independent", n_resamples=np.inf,
                                          alternative="greater", vectorized=True)
            line("permutation", base=a, new=b, out=test.pvalue)


def holm():
    for p in [[.001, .008, .039, .041, .042, .06, .074, .205, .212, .216, .222, .251, .269, .275, .34, 1],
              [.04, .01, .03, .01, .9]]:
        line("holm", p=p, out=multipletests(p, method="holm")[1])


def trigamma():
    for x in [.05, .5, 1, 2, 3.7, 40, 1e4]:
        line("trigamma", in_=x, out=special.polygamma(1, x))


def squeeze():
    rng = np.random.default_rng(2)
    for count, degrees, prior in [(30, 4, 6), (200, 2, 3), (50, 4, 1e9)]:
        variances = .02 * stats.f.rvs(degrees, prior, size=count, random_state=rng)
        degrees = np.full(count, float(degrees))
        degrees[::3] += 2
        fit = fitFDist(variances, degrees)
        scale, prior = (fit["scale"], fit["df2"]) if isinstance(fit, dict) else fit
        line("squeeze", variances=variances, degrees=degrees, out=[scale, prior])


def quantiles():
    for alpha in [.05, 1e-9]:
        line("normal", in_=alpha, out=stats.norm.isf(alpha / 2))
    for alpha, degrees in [(.05, 1), (1e-6, 8), (.05, 1e7)]:
        line("student", in_=[alpha, degrees], out=stats.t.isf(alpha / 2, degrees))
    line("student-p", in_=[3, 1e7], out=2 * stats.t.sf(3, 1e7))


print(f"# scipy {scipy.__version__}, statsmodels {statsmodels.__version__}, inmoose {inmoose.__version__}, "
      f"numpy {np.__version__}; written by reference.py")
for figures in [wilson, newcombe, welch, permutation, holm, trigamma, squeeze, quantiles]:
    figures()
