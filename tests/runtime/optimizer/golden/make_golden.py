#!/usr/bin/env python3
"""Writes golden.txt: 20 steps of every TensorFlow 1.x optimizer on one small float32 vector. Weight
decay, which these have not, is that of Keras's optimizers (TFOptimizer._apply_weight_decay) before them.

    python3 -m venv venv && venv/bin/pip install tensorflow-cpu==2.21.0
    venv/bin/python make_golden.py > golden.txt

All arrays are IEEE-754 float32 bits, eight hexadecimal digits per element.
"""
import os

os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
os.environ["CUDA_VISIBLE_DEVICES"] = ""

import numpy as np  # noqa: E402
import tensorflow as tf  # noqa: E402
from tensorflow.core.protobuf.rewriter_config_pb2 import RewriterConfig  # noqa: E402

v1 = tf.compat.v1
v1.disable_eager_execution()

ELEMENTS = 33
STEPS = 20

# Parameter names are those of the job's OptimizerSpec. every: 0 means a constant learning rate.
RULES = [
    ("SGD", {"learning_rate": 0.05}),
    ("SGD", {"learning_rate": 0.1, "every": 3, "rate": 0.7}),
    ("Momentum", {"learning_rate": 0.01, "momentum": 0.9}),
    ("Momentum", {"learning_rate": 0.01, "momentum": 0.9, "nesterov": 1}),
    ("Adagrad", {"learning_rate": 0.1}),
    ("Adagrad", {"learning_rate": 0.05, "initial_accumulator": 0.5}),
    ("Adadelta", {"learning_rate": 0.001}),
    ("Adadelta", {"learning_rate": 1.0, "rho": 0.9, "epsilon": 1e-6}),
    ("Adam", {"learning_rate": 0.001}),
    ("Adam", {"learning_rate": 0.01, "beta1": 0.8, "beta2": 0.99, "epsilon": 1e-4}),
    ("RMSProp", {"learning_rate": 0.001}),
    ("RMSProp", {"learning_rate": 0.001, "every": 6, "rate": 0.5, "staircase": 1}),
    ("RMSProp", {"learning_rate": 0.01, "momentum": 0.9, "rho": 0.95, "epsilon": 1e-6}),
    ("RMSProp", {"learning_rate": 0.001, "centered": 1}),
    ("RMSProp", {"learning_rate": 0.002, "momentum": 0.5, "centered": 1}),
    ("SGD", {"learning_rate": 0.1, "every": 3, "rate": 0.7, "weight_decay": 0.05}),
    ("Momentum", {"learning_rate": 0.01, "momentum": 0.9, "weight_decay": 1.5}),
    ("Adam", {"learning_rate": 0.001, "weight_decay": 0.004}),
    ("RMSProp", {"learning_rate": 0.002, "momentum": 0.5, "centered": 1, "weight_decay": 0.1}),
    ("Ftrl", {"learning_rate": 0.1}),
    ("Ftrl", {"learning_rate": 0.05, "initial_accumulator": 0.5, "l1": 0.3, "l2": 0.02}),
    ("Ftrl", {"learning_rate": 0.1, "every": 6, "rate": 0.5, "l1": 0.1}),
    ("Ftrl", {"learning_rate": 0.02, "l1": 0.01, "l2": 0.1, "l2_shrinkage": 0.003}),
]

SCHEDULES = [
    {"learning_rate": 0.001, "every": 200, "rate": 0.5, "staircase": 1},
    {"learning_rate": 0.001, "every": 200, "rate": 0.5},
    {"learning_rate": 0.1, "every": 7, "rate": 0.96, "staircase": 1},
    {"learning_rate": 0.1, "every": 7, "rate": 0.96},
    {"learning_rate": 0.5, "every": 49, "rate": 0.9, "staircase": 1},
    {"learning_rate": 3.0, "every": 1000, "rate": 1.1},
]
SCHEDULE_STEPS = list(range(0, 50)) + [97, 98, 199, 200, 201, 399, 400, 699, 700, 1000, 12345, 16777217]


def bits(array):
    return " ".join(f"{word:08x}" for word in np.asarray(array, np.float32).ravel().view(np.uint32))


def inputs():
    random = np.random.RandomState(1)
    weights = (random.standard_normal(ELEMENTS) * 0.1).astype(np.float32)
    scales = np.ones(ELEMENTS, np.float32)
    weights[0:3] = 0
    scales[0] = 0  # nothing ever happens to this one
    weights[3:6] = [1e-12, -1e-30, 3e-38]
    weights[6:9] = [1000, -250000, 1e7]
    scales[8:14] = [1000, 1e-6, 1e-3, 30, 1e-20, 1e-37]
    weights[13] = 0  # with the gradient above: subnormal all along
    gradients = [(random.standard_normal(ELEMENTS) * scales).astype(np.float32) for _ in range(STEPS)]
    for step in range(1, STEPS):
        gradients[step][14] = 0  # a gradient in the first step only
    for step in range(0, STEPS, 2):
        gradients[step][15] = 0
    return weights, gradients


def session():
    """One thread. Without constant folding, which would turn the division by `every` into a product
    with its rounded inverse: another number, and with staircase sometimes a drop one step late."""
    config = v1.ConfigProto(intra_op_parallelism_threads=1, inter_op_parallelism_threads=1)
    config.graph_options.rewrite_options.constant_folding = RewriterConfig.OFF
    return v1.Session(config=config)


def learning_rate(p, step):
    if not p.get("every"):
        return p["learning_rate"]
    return v1.train.exponential_decay(p["learning_rate"], step, p["every"], p["rate"],
                                      staircase=bool(p.get("staircase")))


def optimizer(name, p, rate):
    if name == "SGD":
        return v1.train.GradientDescentOptimizer(rate)
    if name == "Momentum":
        return v1.train.MomentumOptimizer(rate, p["momentum"], use_nesterov=bool(p.get("nesterov")))
    keys = {
        "Adagrad": {"initial_accumulator": "initial_accumulator_value"},
        "Adadelta": {"rho": "rho", "epsilon": "epsilon"},
        "Adam": {"beta1": "beta1", "beta2": "beta2", "epsilon": "epsilon"},
        "Ftrl": {"initial_accumulator": "initial_accumulator_value", "l1": "l1_regularization_strength",
                 "l2": "l2_regularization_strength", "l2_shrinkage": "l2_shrinkage_regularization_strength"},
        "RMSProp": {"rho": "decay", "momentum": "momentum", "epsilon": "epsilon", "centered": "centered"},
    }[name]
    arguments = {theirs: p[ours] for ours, theirs in keys.items() if ours in p}
    if "centered" in arguments:
        arguments["centered"] = bool(arguments["centered"])
    return getattr(v1.train, name + "Optimizer")(rate, **arguments)


def run(name, p, weights, gradients):
    with tf.Graph().as_default(), session() as running:
        step = v1.train.create_global_step()
        variable = v1.get_variable("w", initializer=weights)
        gradient = v1.placeholder(tf.float32, [ELEMENTS])
        rate = learning_rate(p, step)
        rule = optimizer(name, p, rate)
        # Fed: of two constants TensorFlow would take the product first, which rounds otherwise.
        decay = v1.placeholder(tf.float32, [])
        decayed = []
        if "weight_decay" in p:
            decayed = [variable.assign_sub(variable * decay * rate)]
        with tf.control_dependencies(decayed):
            train = rule.apply_gradients([(gradient, variable)], global_step=step)
        running.run(v1.global_variables_initializer())
        print("rule", name, *(f"{key}={value}" for key, value in p.items()))
        for values in gradients:
            running.run(train, {gradient: values, decay: p.get("weight_decay", 0)})
            print("w", bits(running.run(variable)))
        for slot in rule.get_slot_names():
            print("slot", slot, bits(running.run(rule.get_slot(variable, slot))))


def schedule(p):
    with tf.Graph().as_default(), session() as running:
        step = v1.placeholder(tf.int64, [])
        rate = learning_rate(p, step)
        print("schedule", *(f"{key}={value}" for key, value in p.items()))
        for at in SCHEDULE_STEPS:
            print("rate", at, bits(running.run(rate, {step: at})))


def main():
    weights, gradients = inputs()
    print("tensorflow", tf.__version__)
    print("initial", bits(weights))
    for gradient in gradients:
        print("gradient", bits(gradient))
    for name, p in RULES:
        run(name, p, weights, gradients)
    for p in SCHEDULES:
        schedule(p)


if __name__ == "__main__":
    main()
