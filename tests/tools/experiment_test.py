#!/usr/bin/env python3
"""Tests how tools/experiment.py compares policies: usage: experiment_test.py TOOLS."""
import math
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
sys.dont_write_bytecode = True
import experiment


def result(policy, seed, right):
    return {"policy": policy, "seed": seed, "after": {2: (right, 100)}}


class Experiment(unittest.TestCase):
    def test_compares_all_seeds_the_first_one_first(self):
        runs = experiment.runs_to_compare()
        self.assertEqual(len(runs), len(experiment.POLICIES) * len(experiment.SEEDS))
        self.assertEqual(len(set(runs)), len(runs))
        first = [f"{policy}-{experiment.SEEDS[0]}" for policy in experiment.POLICIES]
        self.assertEqual(runs[:len(first)], first)

    def test_pairs_runs_by_their_seed(self):
        # Seeds differ by 30 points, policies with one seed by 1 and 3.
        results = [result("b", 2, 53), result("a", 1, 20), result("b", 1, 21), result("a", 2, 50), result("b", 3, 9)]
        points, error = experiment.paired_points(results, "b", "a")
        self.assertAlmostEqual(points, 2)
        self.assertAlmostEqual(error, 1)
        self.assertTrue(math.isnan(experiment.paired_points(results[:3], "b", "a")[1]))


if __name__ == "__main__":
    unittest.main()
