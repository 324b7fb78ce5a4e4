"""Tests of figures.py."""

import random
import unittest
from collections import Counter

from lab import figures


class Figures(unittest.TestCase):
    def test_median_and_deviation(self):
        self.assertEqual(figures.median([3, 1, 2]), 2)
        self.assertEqual(figures.median([4, 1, 2, 3]), 2.5)
        # R: sd(c(2, 4, 4, 4, 5, 5, 7, 9)) is 2.13809
        self.assertAlmostEqual(figures.deviation([2, 4, 4, 4, 5, 5, 7, 9]), 2.13809, 5)

    def test_median_interval_equals_sign_test_table(self):
        # From the table of the sign test: the 4th and 12th of 15 values, the 6th and 15th of 20, the
        # outermost of 6 (96.9 %). Fewer values are not enough.
        interval = figures.median_interval
        self.assertEqual(interval(range(1, 16)), (4, 12))
        self.assertEqual(interval(range(20, 0, -1)), (6, 15))
        self.assertEqual(interval(range(1, 7)), (1, 6))
        self.assertEqual(interval([2, 1]), (1, 2))
        self.assertEqual(interval([7]), (7, 7))
        self.assertEqual(figures.ratios([2, 3], [4, 1]), [0.5, 3])

    def test_margins_equal_those_of_paper(self):
        self.assertAlmostEqual(figures.margin(100), 9.8, 5)
        self.assertAlmostEqual(figures.margin(810_000), 0.11, 2)
        self.assertAlmostEqual(figures.margin(3000), 1.8, 1)

    def test_distortion_sums_over_all_functions(self):
        profile = figures.shares({"a": 3, "b": 1})
        self.assertEqual(figures.distortion(profile, {"a": 50, "c": 50}), 100)
        self.assertEqual(figures.distortion(profile, profile), 0)

    def test_chance_equals_mean_distortion_of_random_samples(self):
        source = random.Random(1)
        reference = {"a": 55, "b": 30, "c": 10, "d": 5}

        def profile(samples):
            drawn = source.choices(list(reference), list(reference.values()), k=samples)
            return figures.shares(Counter(drawn))

        seen = figures.mean(
            [figures.distortion(profile(900), profile(400)) for _ in range(400)]
        )
        self.assertAlmostEqual(figures.chance(reference, 900, 400) / seen, 1, 1)


if __name__ == "__main__":
    unittest.main()
