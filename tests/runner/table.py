"""Where the time went."""
import collections

LONGEST = 20


def print_times(times):
    """The longest entries of (lane, entry, seconds), then what each lane took in all."""
    if not times:
        return
    print("   seconds  lane       the longest entries")
    for lane, entry, seconds in sorted(times, key=lambda time: -time[2])[:LONGEST]:
        print(f"{seconds:10.1f}  {lane:<9}  {entry}")
    sums, counts = collections.Counter(), collections.Counter()
    for lane, _, seconds in times:
        sums[lane] += seconds
        counts[lane] += 1
    for lane, seconds in sums.most_common():
        print(f"lane {lane}: {seconds:.0f} s in {counts[lane]} entries")
