"""What of `make scaling` is known before anything runs: models, links, and who runs where. Pure."""

# A step's computing, by one machine: of mnist_cnn what a core takes for 128 images, of the others what the cost model's page
# takes (docs/cost_model.md), a GPU of 2017 and some 64 images.
MODELS = {
    "mnist_cnn": {"parameters": 3274634, "step_seconds": 0.1},
    "resnet50": {"parameters": 25600000, "step_seconds": 0.3},
    "vgg19": {"parameters": 143700000, "step_seconds": 0.6},
}
RATES = {"1 Gbit/s": 1e9, "10 Gbit/s": 1e10}
# Of a full packet of 1,500 bytes on Ethernet, what is left by its header and those of IPv4 and of TCP with timestamps; links are
# shaped by the whole of it, and the cost model asks for the rate of the payload (docs/cost_model.md).
PAYLOAD = (1500 - 20 - 32) / (1500 + 14)
SIZES = (2, 4, 8, 16)  # machines; one alone exchanges nothing
SPLITS = {9: (4, 5, 6, 7, 8), 16: (8, 9, 10, 12, 14)}  # workers of so many machines; the others are servers
SYSTEMS = ("dedicated", "colocated", "ring")
# Models are carried by smaller ones, behind links of this rate or what MOST_FACTOR wants, so that all of them fit this machine's
# memory and what is sent stays below 1 GB/s together.
LINK = 250e6  # bits per second
MOST_FACTOR = 10  # no times are longer than so many times the real ones
# Where the smaller one's times would be less than this of the real ones, the larger one carries them: what this machine's
# threads wait for a processor does not get shorter with the model.
LEAST_FACTOR = 0.25


def dense(*widths):
    """Parameters of fully connected layers."""
    return sum(inputs * outputs + outputs for inputs, outputs in zip(widths, widths[1:]))


WIDTH, LAYERS = 2304, 3
CARRIERS = (
    {"model": {"name": "mnist_cnn", "dropout": 0.5}, "parameters": 3274634},
    {"model": {"name": "mlp", "hidden": [WIDTH] * LAYERS}, "parameters": dense(28 * 28, *[WIDTH] * LAYERS, 10)},
)


def factor_by(carried_by, model, rate):
    return rate / LINK * carried_by["parameters"] / MODELS[model]["parameters"]


def carrier(model, rate):
    """The model whose bytes are sent."""
    small, large = CARRIERS
    return small if factor_by(small, model, rate) >= LEAST_FACTOR else large


def factor(model, rate):
    """How many times longer everything takes here. Bytes by rate is what an exchange takes: a smaller model behind a link
    that is smaller by the same factor takes as long."""
    return min(MOST_FACTOR, factor_by(carrier(model, rate), model, rate))


def link(model, rate):
    """Bits per second of the links here."""
    return LINK * factor_by(carrier(model, rate), model, rate) / factor(model, rate)


def payload(rate):
    """Bits per second of the model that a link of that rate carries."""
    return rate * PAYLOAD


def measured_steps(seconds):
    """After the first, of which each takes so long here: four, or as many as half a minute has, but two."""
    return max(2, min(4, int(30 / seconds)))


class Layout:
    """Machines by number, and the task or tasks of each."""

    def __init__(self, system, workers, servers):
        self.system, self.workers, self.servers = system, workers, servers
        self.of = {f"worker-{i}": i for i in range(workers)}
        first = 0 if system == "colocated" else workers
        self.of |= {f"ps-{i}": first + i for i in range(servers)}

    @property
    def machines(self):
        return max(self.of.values()) + 1


def layout(system, machines, planned):
    """`planned`: how the cost model splits them (`trainyard plan --machines`)."""
    if system == "dedicated":
        return Layout(system, planned["dedicated"]["workers"], planned["dedicated"]["ps"])
    return Layout(system, machines, machines if system == "colocated" else 0)


def best_share(model, rate):
    """e*: of machines to be workers, where servers have machines of their own (docs/cost_model.md)."""
    kind = MODELS[model]
    return max(0.5, 1 / (1 + (kind["parameters"] * 32 / payload(rate) / kind["step_seconds"]) ** 0.5))


def job(name, place, carried_by, step_seconds, steps):
    """Nobody computes: a step takes its seconds, and what the exchange adds."""
    training = {"model": carried_by["model"] | {"simulatedStepSeconds": step_seconds},
                "data": {"format": "synthetic", "shape": [28, 28, 1], "classes": 10, "samples": 2 * place.workers},
                "batchSize": 1, "steps": steps, "optimizer": {"name": "SGD", "learningRate": 0.01},
                "checkpoint": {"everySeconds": 604800}}
    spec = {"volumes": [{"name": "data", "mountPath": "/data"}], "strategy": "AllReduce", "worker": {"replicas": place.workers}, "training": training}
    if place.servers:
        spec |= {"strategy": "ParameterServer", "ps": {"replicas": place.servers}}
        training |= {"placement": {"strategy": "Balanced"}, "chunkReplicas": "Never"}
    return {"apiVersion": "trainyard.dev/v1alpha1", "kind": "TrainingJob", "metadata": {"name": name}, "spec": spec}


def speedup(workers, alone, step):
    """Work per second, against that of one machine: each worker brings a batch of its own."""
    return workers * alone / step
