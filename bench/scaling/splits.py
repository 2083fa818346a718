"""How 9 and 16 machines are best split into workers and parameter servers, beside the cost model's e*: the second half of
`make scaling`.

    python3 bench/scaling/splits.py --bin build/dev/bin --out build/splits [--quick]

Machines, computing and links are those of scaling.py. Writes results.json, results.md (the table of docs/experiments.md)
and splits.svg.
"""

import json
import pathlib
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]

import scaling  # noqa: E402  finds what follows
import machines  # noqa: E402
import splits_picture  # noqa: E402


class Splits(scaling.Scaling):
    def foretold(self, model, rate, place):
        """Seconds of a step by the placement of just this job."""
        scale = machines.factor(model, machines.RATES[rate])
        description = self.description(model, rate, place, steps=1)
        file = self.args.out / "job.json"
        file.write_text(json.dumps(description))
        carried = machines.payload(machines.link(model, machines.RATES[rate]))
        printed = subprocess.run(
            [self.args.bin / "trainyard", "plan", "-f", file, "--bandwidth", f"{carried:.0f}bit", "-o", "json"],
            check=True, stdout=subprocess.PIPE, text=True).stdout
        return json.loads(printed)["prediction"]["stepSeconds"] / scale

    def measure(self):
        made = self.head()
        for model in self.args.models:
            for rate in self.args.rates:
                for size in self.args.sizes:
                    for workers in machines.SPLITS[size]:
                        place = machines.Layout("dedicated", workers, size - workers)
                        made["points"].append(self.point(model, rate, place, self.foretold(model, rate, place)))
        return made


def main():
    return scaling.run(__doc__.splitlines()[0], "splits", Splits, list(machines.SPLITS), 1, splits_picture)


if __name__ == "__main__":
    sys.exit(main())
