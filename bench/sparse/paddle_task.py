"""One task of a PaddlePaddle parameter-server job with embedding tables, for compare.py: static graph, `a_sync`,
MemorySparseTable on the servers, plain SGD (its Adagrad refuses the gradients of a looked-up table). A worker takes its
batches from the file without a parser (records.read), and prints what it measured as JSON.

    python paddle_task.py --role worker --index 0 --ps_hosts a:1,b:2 --worker_hosts c:3,d:4 --model wide_and_deep ...
"""
import argparse
import json
import os
import pathlib
import sys
import time

import records

FEATURES, NUMBERS, DIM = records.FEATURES, records.NUMBERS, 16


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--role", required=True, choices=["ps", "worker"])
    parser.add_argument("--index", required=True, type=int)
    parser.add_argument("--ps_hosts", required=True)
    parser.add_argument("--worker_hosts", required=True)
    parser.add_argument("--model", required=True, choices=["wide_and_deep"])
    parser.add_argument("--data", required=True, type=pathlib.Path)
    parser.add_argument("--batch", required=True, type=int)
    parser.add_argument("--steps", required=True, type=int, help="of all workers together")
    parser.add_argument("--warm-up", required=True, type=int)
    parser.add_argument("--rows", required=True, type=int, help="of a table")
    return parser.parse_args()


def tell_role(args):
    """Paddle reads its place from the environment."""
    host, port = (args.ps_hosts if args.role == "ps" else args.worker_hosts).split(",")[args.index].split(":")
    os.environ.update(TRAINING_ROLE="PSERVER" if args.role == "ps" else "TRAINER",
                      PADDLE_PSERVERS_IP_PORT_LIST=args.ps_hosts, PADDLE_TRAINER_ENDPOINTS=args.worker_hosts,
                      PADDLE_TRAINERS_NUM=str(len(args.worker_hosts.split(","))), PADDLE_TRAINER_ID=str(args.index),
                      POD_IP=host, PADDLE_PORT=port, PADDLE_WITH_GLOO="0", OMP_NUM_THREADS="1")


def look_up(paddle, name, dim, column, rows):
    scale = 0.01 if dim > 1 else 0.0
    made = paddle.nn.initializer.Uniform(-scale, scale)
    found = paddle.static.nn.sparse_embedding(column, size=[rows, dim],
                                              param_attr=paddle.ParamAttr(name=name, initializer=made))
    return paddle.reshape(found, [-1, dim])


def build(paddle, args):
    """The loss; minimize() is for the caller."""
    fc, data = paddle.static.nn.fc, paddle.static.data
    ids = [data(f"f{i}", [None, 1], "int64") for i in range(FEATURES)]
    numbers, label = data("numbers", [None, NUMBERS], "float32"), data("click", [None, 1], "float32")
    x = paddle.concat([*(look_up(paddle, "deep", DIM, column, args.rows) for column in ids), numbers], 1)
    wide = paddle.add_n([look_up(paddle, "wide", 1, column, args.rows) for column in ids])
    for width in (512, 256):
        x = fc(x, width, activation="relu")
    return paddle.mean(paddle.nn.functional.binary_cross_entropy_with_logits(
        fc(x, 1) + fc(numbers, 1, bias_attr=False) + wide, label))


def batches(args, workers):
    """This worker's share of the file, over and over."""
    take, samples = records.read(args.data, records.Layout())
    batch = args.index
    while True:
        begin = batch * args.batch % (samples // args.batch * args.batch)
        ids, numbers, labels = take(begin, begin + args.batch)
        yield {**{f"f{i}": ids[:, i:i + 1] for i in range(FEATURES)}, "numbers": numbers, "click": labels[:, None]}
        batch += workers


def measure(paddle, args, loss):
    """This worker's own steps, by the number of workers, as if the others made as many."""
    executor = paddle.static.Executor(paddle.CPUPlace())
    executor.run(paddle.static.default_startup_program())
    paddle.distributed.fleet.init_worker()
    print("ready", flush=True)
    sys.stdin.readline()  # until all are
    workers = len(args.worker_hosts.split(","))
    program, first, step, losses = paddle.static.default_main_program(), None, 0, []
    for batch in batches(args, workers):
        losses.append(float(executor.run(program, feed=batch, fetch_list=[loss])[0]))
        step, now = step + workers, time.monotonic()
        if first is None and step >= args.warm_up:
            first = (step, now)
        if args.index == 0 and step >= args.steps:  # the others go on until they are ended
            break
    print(json.dumps({"steps": step - first[0], "seconds": now - first[1],
                      "first_loss": losses[0], "last_loss": losses[-1]}), flush=True)
    os._exit(0)


def main():
    args = parse()
    tell_role(args)
    import paddle  # reads the environment
    from paddle.distributed import fleet
    paddle.enable_static()
    fleet.init()
    loss = build(paddle, args)
    strategy = fleet.DistributedStrategy()
    strategy.a_sync = True
    fleet.distributed_optimizer(paddle.optimizer.SGD(0.02), strategy).minimize(loss)
    if args.role == "ps":
        fleet.init_server()
        print("serving", flush=True)
        fleet.run_server()
    else:
        measure(paddle, args, loss)


if __name__ == "__main__":
    main()
