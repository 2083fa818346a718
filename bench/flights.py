"""What examples/ctr/flights.yaml learns beside what TensorFlow learns with the same model, features and rules.

    python3 bench/flights.py --bin build/dev/bin --out build/flights [--seeds 5] [--python PYTHON]

Ours is the job as it is, with 2 parameter servers and 2 workers, once a seed. TensorFlow's is one process with
the workers' samples of a step for its batch, which is the same as synchronous steps of two: the layers, tables
and update rules of the job, read from the run's job.json, on the same files, an order of samples of its own a
seed. TensorFlow comes from PyPI (deploy/wheels_tensorflow.txt) into a virtual environment below --out, or is
that of --python; the flights by examples/ctr/flights.py. Prints the AUC of each seed and the means; exits with 1
where these are further apart than the bar, with 77 where TensorFlow cannot be had.
"""
import argparse
import csv
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
EXAMPLE = ROOT / "examples" / "ctr"
UNAVAILABLE = 77
BAR = 0.005  # between the means over the seeds
WORKERS = 2


def ours(args, seed):
    """The job's AUC after its last step, and its number of steps."""
    sys.path.insert(0, str(HERE))
    import programs
    run = args.out / f"run-{seed}"
    shutil.rmtree(run, ignore_errors=True)
    programs.run_job(args.bin, EXAMPLE / "flights.yaml", run, "--volume", f"data={args.out / 'data'}",
                     "--set", f"training.seed={seed}")
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    last = [record for record in records if "auc" in record][-1]
    return last["auc"], last["step"]


class Flights:
    """Columns of a file as a job reads them; ids by order of appearance, which are the same for all files."""

    def __init__(self, columns):
        self.columns = columns
        self.ids = {}  # by table, a row for each id

    def read(self, numpy, path, tables):
        with open(path, newline="") as file:
            rows = list(csv.DictReader(file))
        kinds = {c["name"]: c["kind"] for c in self.columns}
        samples = {name: numpy.array([float(row[name] or 0) for row in rows], numpy.float32)
                   for name, kind in kinds.items() if kind in ("Number", "Label")}
        for table in tables:
            known = self.ids.setdefault(table["name"], {})
            for feature in table["features"]:
                samples[table["name"], feature] = numpy.array(
                    [known.setdefault(row[feature], len(known)) for row in rows], numpy.int32)
        return samples


def auc(numpy, scores, labels):
    """The area under the ROC curve, by ranks (Mann and Whitney); ties count half."""
    values, which, counts = numpy.unique(scores, return_inverse=True, return_counts=True)
    ranks = (numpy.cumsum(counts) - (counts - 1) / 2)[which]
    clicks = labels.sum()
    return float((ranks[labels == 1].sum() - clicks * (clicks + 1) / 2) / (clicks * (len(labels) - clicks)))


class Graph:
    """wide_and_deep with TensorFlow 1's API."""

    def __init__(self, tensorflow, training, rows):
        self.tf = tensorflow.compat.v1
        self.tables, self.numbers = training["tables"], [c["name"] for c in training["data"]["columns"]
                                                         if c["kind"] == "Number"]
        self.places = {(t["name"], f): self.tf.placeholder(self.tf.int32, [None])
                       for t in self.tables for f in t["features"]}
        self.values = self.tf.placeholder(self.tf.float32, [None, len(self.numbers)])
        self.labels = self.tf.placeholder(self.tf.float32, [None])
        groups = []  # of variables with one rule
        deep, wide = [], 0
        for table in self.tables:
            variable = self.variable(table["name"], [rows[table["name"]], table["dim"]],
                                     table["initial"].get("scale", 0))
            groups.append(([variable], table.get("optimizer", training["optimizer"])))
            for feature in table["features"]:
                row = self.tf.nn.embedding_lookup(variable, self.places[table["name"], feature])
                if table["dim"] == 1:
                    wide += row[:, 0]
                else:
                    deep.append(row)
        layers = []
        x = self.tf.concat(deep + [self.values], 1)
        for i, width in enumerate(training["model"]["hidden"] + [1]):
            inputs = int(x.shape[1])
            layers += [self.variable(f"layer{i}_wei", [inputs, width], inputs ** -0.5),
                       self.variable(f"layer{i}_bia", [width], 0)]
            x = self.tf.matmul(x, layers[-2]) + layers[-1]
            x = self.tf.nn.relu(x) if i < len(training["model"]["hidden"]) else x
        layers.append(self.variable("numbers_wei", [len(self.numbers), 1], 0))
        groups.append((layers, training["optimizer"]))
        self.logits = (x + self.tf.matmul(self.values, layers[-1]))[:, 0] + wide
        loss = self.tf.reduce_mean(
            self.tf.nn.sigmoid_cross_entropy_with_logits(labels=self.labels, logits=self.logits))
        self.step = self.tf.group(*[self.rule(of).minimize(loss, var_list=variables) for variables, of in groups])

    def variable(self, name, shape, deviation):
        made = (self.tf.truncated_normal_initializer(stddev=deviation) if deviation
                else self.tf.zeros_initializer())
        return self.tf.get_variable(name, shape, initializer=made)

    def rule(self, optimizer):
        named = {"Adagrad": self.tf.train.AdagradOptimizer, "Ftrl": self.tf.train.FtrlOptimizer}
        return named[optimizer["name"]](optimizer["learningRate"])

    def feed(self, numpy, samples, which):
        fed = {place: samples[key][which] for key, place in self.places.items()}
        fed[self.values] = numpy.stack([samples[name][which] for name in self.numbers], 1)
        return fed


def learn(data, job, seed, steps):
    """TensorFlow's AUC after so many steps."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    import numpy
    import tensorflow
    tf = tensorflow.compat.v1
    tf.disable_eager_execution()
    tf.set_random_seed(seed)
    training = json.loads(job.read_text())["spec"]["training"]
    columns = training["data"]["columns"]
    label = next(c["name"] for c in columns if c["kind"] == "Label")
    flights = Flights(columns)
    train, evaluation = (flights.read(numpy, data / name, training["tables"]) for name in ("train.csv", "eval.csv"))
    graph = Graph(tensorflow, training, {name: len(ids) for name, ids in flights.ids.items()})
    batch = WORKERS * training["batchSize"]
    order, random = numpy.array([], numpy.int64), numpy.random.RandomState(seed)
    config = tf.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    with tf.Session(config=config) as session:
        session.run(tf.global_variables_initializer())
        for _ in range(steps):
            if len(order) < batch:  # on into the next pass
                order = numpy.concatenate([order, random.permutation(len(train[label]))])
            which, order = order[:batch], order[batch:]
            session.run(graph.step, {**graph.feed(numpy, train, which), graph.labels: train[label][which]})
        everything = numpy.arange(len(evaluation[label]))
        logits = session.run(graph.logits, graph.feed(numpy, evaluation, everything))
    return auc(numpy, logits, evaluation[label])


def theirs(args, seed, steps):
    told = subprocess.run([args.python, "-B", __file__, "--learn", str(seed), "--steps", str(steps),
                           "--out", args.out], check=True, stdout=subprocess.PIPE, text=True)
    return float(told.stdout.split()[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", type=pathlib.Path)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--python", type=pathlib.Path)
    parser.add_argument("--learn", type=int, help=argparse.SUPPRESS)  # TensorFlow's side, a process of its own
    parser.add_argument("--steps", type=int, help=argparse.SUPPRESS)
    args = parser.parse_args()
    args.out = args.out.resolve()
    if args.learn is not None:
        print(learn(args.out / "data", args.out / f"run-{args.learn}" / "job.json", args.learn, args.steps))
        return 0
    args.out.mkdir(parents=True, exist_ok=True)
    if not (args.out / "data" / "eval.csv").exists():
        subprocess.run([sys.executable, EXAMPLE / "flights.py", args.out / "data"], check=True)
    if args.python is None:
        sys.path.insert(0, str(HERE / "tensorflow"))
        import cluster
        args.python = cluster.tensorflow(args.out / "venv")
    if args.python is None:
        print("TensorFlow cannot be had", file=sys.stderr)
        return UNAVAILABLE
    print("| seed | ours | TensorFlow |\n|--|--|--|")
    found = []
    for seed in range(1, args.seeds + 1):
        mine, steps = ours(args, seed)
        found.append((mine, theirs(args, seed, steps)))
        print(f"| {seed} | {found[-1][0]:.4f} | {found[-1][1]:.4f} |", flush=True)
    means = [statistics.mean(side) for side in zip(*found)]
    print(f"| mean | {means[0]:.4f} | {means[1]:.4f} |")
    apart = abs(means[0] - means[1])
    print(f"\n{apart:.4f} apart, the bar is {BAR}")
    return 0 if apart <= BAR else 1


if __name__ == "__main__":
    sys.exit(main())
