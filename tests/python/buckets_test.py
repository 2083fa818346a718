#!/usr/bin/env python3
"""Which gradients travel together: trainyard/torch/_buckets.py, a pure function."""
import importlib.util
import random
import sys
import unittest

import ranks

PYTHON = ranks.SOURCE / "python"


def load():
    """The module by itself: it needs neither torch nor the library."""
    path = PYTHON / "trainyard" / "torch" / "_buckets.py"
    spec = importlib.util.spec_from_file_location("buckets", path)
    module = importlib.util.module_from_spec(spec)
    sys.modules["buckets"] = module
    spec.loader.exec_module(module)
    return module


buckets = load()
MIB = 1 << 20


def entries(*sizes, kind="float32"):
    return [buckets.Entry(size, kind) for size in sizes]


class PlanTest(unittest.TestCase):
    def test_nothing_makes_no_bucket(self):
        self.assertEqual(buckets.plan_buckets([]), [])

    def test_last_declared_comes_first(self):
        self.assertEqual(buckets.plan_buckets(entries(10, 10, 10)), [[2, 1, 0]])

    def test_first_bucket_is_small_and_later_ones_large(self):
        planned = buckets.plan_buckets(entries(*[MIB // 2] * 60))
        self.assertEqual(planned[0], [59, 58])
        self.assertEqual(len(planned[1]), 50)
        self.assertEqual([at for bucket in planned for at in bucket], list(reversed(range(60))))

    def test_one_larger_than_a_bucket_is_alone(self):
        planned = buckets.plan_buckets(entries(10, 100 * MIB, 10))
        self.assertEqual(planned, [[2], [1], [0]])

    def test_a_full_bucket_takes_no_more(self):
        planned = buckets.plan_buckets(entries(1, 1, 1, 1, 1), first_bytes=2, bucket_bytes=2)
        self.assertEqual(planned, [[4, 3], [2, 1], [0]])

    def test_kinds_do_not_mix(self):
        mixed = [buckets.Entry(8, "float32"), buckets.Entry(4, "float16"), buckets.Entry(8, "float32")]
        self.assertEqual(buckets.plan_buckets(mixed), [[1], [2, 0]])

    def test_a_bucket_waits_for_its_last_member(self):
        mixed = [buckets.Entry(8, kind) for kind in "abab"]
        self.assertEqual(buckets.plan_buckets(mixed), [[3, 1], [2, 0]])

    def test_groups_stay_together(self):
        planned = buckets.plan_buckets(entries(1, 1, 1, 1, 1), groups=[[0, 4], [2]])
        self.assertEqual(planned, [[2], [3, 1], [4, 0]])

    def test_a_group_is_as_large_as_it_is(self):
        planned = buckets.plan_buckets(entries(MIB, MIB, MIB), groups=[[0, 1, 2]], bucket_bytes=1)
        self.assertEqual(planned, [[2, 1, 0]])

    def test_a_group_of_two_kinds_is_two_buckets(self):
        mixed = [buckets.Entry(8, "a"), buckets.Entry(8, "b"), buckets.Entry(8, "a")]
        self.assertEqual(buckets.plan_buckets(mixed, groups=[[0, 1, 2]]), [[1], [2, 0]])

    def test_those_alone_leave_their_group(self):
        planned = buckets.plan_buckets(entries(1, 1, 1, 1), groups=[[1, 2]], alone=[2])
        self.assertEqual(planned, [[2], [1], [3, 0]])

    def test_an_empty_group_makes_no_bucket(self):
        self.assertEqual(buckets.plan_buckets(entries(1), groups=[[], [0]]), [[0]])

    def test_every_parameter_is_in_one_bucket(self):
        chance = random.Random(7)
        for _ in range(200):
            given = [buckets.Entry(chance.randrange(100), chance.choice("abc"))
                     for _ in range(chance.randrange(40))]
            places = list(range(len(given)))
            chance.shuffle(places)
            cut = chance.randrange(len(given) + 1)
            planned = buckets.plan_buckets(
                given, groups=[places[:cut // 2], places[cut // 2:cut]], alone=places[cut:cut + 2],
                first_bytes=50, bucket_bytes=120)
            self.assertEqual(sorted(at for bucket in planned for at in bucket),
                             list(range(len(given))))
            for bucket in planned:
                self.assertEqual(len({given[at].kind for at in bucket}), 1)
            last = [min(bucket) for bucket in planned]
            self.assertEqual(last, sorted(last, reverse=True))


class SplitTest(unittest.TestCase):
    def test_runs_differ_by_at_most_one(self):
        self.assertEqual(buckets.split_evenly(7, 3), [[0, 1, 2], [3, 4], [5, 6]])

    def test_more_parts_than_there_are(self):
        self.assertEqual(buckets.split_evenly(2, 5), [[0], [1]])

    def test_nothing(self):
        self.assertEqual(buckets.split_evenly(0, 3), [])


if __name__ == "__main__":
    unittest.main()
