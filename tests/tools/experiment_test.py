#!/usr/bin/env python3
"""Tests how tools/experiment.py compares policies: usage: experiment_test.py TOOLS."""
import math
import sys
import unittest

sys.path.insert(0, sys.argv.pop(1))
sys.dont_write_bytecode = True
import experiment
import experiment_reduce


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

    def test_the_table_of_sums_has_the_figures_of_all_seeds(self):
        sums = len(experiment_reduce.SUMS)
        run = lambda i, loss, flushed: {"run": i, "validation_loss": loss, "gap": 0.25, "outcome": "worse",
                                        "paired": {"standard_error": 0.0625}, "reduce_flushed": flushed, "reduce_saturated": 0,
                                        "sent_bytes": 1000}
        comparison = {"runs": [run(i, 1, 0.5) for i in range(sums)], "reseeded": [run(i, 2, 0.25) for i in range(sums)]}
        rows = experiment_reduce.rows_of(comparison, 8)
        self.assertEqual(rows[1], ["bf16", "nearest", 1, 8, "1.5000", "+0.25", "0.062", "worse", "38", "0", "1"])
        self.assertEqual(rows[0][5:7], ["–", "–"])
        self.assertEqual(len(rows[0]), len(experiment_reduce.HEADER))
        self.assertEqual(experiment_reduce.policy_of("e4m3", "stochastic", 1024),
                         "32-true reduce=e4m3 reduce_rounding=stochastic loss_scale=1024")


if __name__ == "__main__":
    unittest.main()
