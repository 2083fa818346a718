"""Who may include whom: the table of docs/architecture.md as data.

A folder may include itself, what is named here, and generated protocol buffers. A name without a star
is exactly that folder; "x/*" is all folders below x. The longest matching folder decides for a file.
"""

# Bottom first: each may include those before it.
_RUNTIME_BOTTOM = ["tensor", "catalog", "placement", "optimizer", "storage", "checkpoint", "data", "events"]
_RUNTIME_BOTTOM = [f"runtime/{name}" for name in _RUNTIME_BOTTOM]
_OPERATOR = [f"operator/{name}" for name in (
    "apply", "cache", "cluster", "job", "lease", "plan", "progress", "queue", "record")]

LAYERS = {
    "base/core": [],
    "base/process": ["base/core"],
    "base/rpc": ["base/core", "base/process", "base/security"],
    "base/metrics": ["base/core"],
    "base/http": ["base/core", "base/metrics", "base/process"],
    "base/security": ["base/core", "base/process"],
    "base/json": ["base/core"],
    "base/programs": ["base/core", "base/json", "base/process"],
    "base/flags": ["base/core"],
    **{folder: ["base/*", *_RUNTIME_BOTTOM[:at]] for at, folder in enumerate(_RUNTIME_BOTTOM)},
    "runtime/cost": ["base/core"],
    "runtime/stream": ["base/*"],
    "runtime/session": ["base/*", "runtime/tensor"],
    "runtime/transport": ["base/*", "runtime/tensor", "runtime/stream"],
    "runtime/coordinator": ["base/*", *_RUNTIME_BOTTOM],
    "runtime/rows": ["base/*", *_RUNTIME_BOTTOM],
    "runtime/lanes": ["base/*", "runtime/stream", "runtime/transport"],
    "runtime/ps": ["base/*", *_RUNTIME_BOTTOM, "runtime/coordinator", "runtime/lanes", "runtime/rows"],
    "runtime/collective": ["base/*", *_RUNTIME_BOTTOM, "runtime/coordinator", "runtime/transport"],
    "runtime/ring": ["base/*", *_RUNTIME_BOTTOM, "runtime/coordinator", "runtime/stream",
                     "runtime/transport", "runtime/collective"],
    "runtime/nccl": ["base/*", "runtime/tensor", "runtime/collective"],
    "runtime/model": ["base/*", *_RUNTIME_BOTTOM],
    "runtime/torch": ["base/*", "runtime/model"],
    # Whatever computes: no model of ours.
    "runtime/train": ["base/*", *_RUNTIME_BOTTOM, "runtime/coordinator"],
    "runtime/compute": ["base/*", *_RUNTIME_BOTTOM, "runtime/model", "runtime/train"],
    "runtime/program": ["base/*", *_RUNTIME_BOTTOM, "runtime/session", "runtime/train"],
    # The processes of the runtime, put together: runtime/task and the files in runtime itself.
    "runtime": ["base/*", "runtime/*"],
    "agent": ["base/*", "agent/*"],
    "agent/membership": ["base/*"],
    "agent/traffic": ["base/*", "agent/membership"],
    "agent/supervisor": ["base/*", "agent/membership"],
    "agent/telling": ["base/*"],
    "agent/service": ["base/*", "agent/membership", "agent/supervisor", "agent/telling", "agent/traffic"],
    "operator/cluster": ["base/core"],
    "operator/job": ["base/core", "base/json"],
    "operator/queue": ["base/core"],
    "operator/plan": ["base/core", "operator/cluster"],
    "operator/cache": ["base/core", "operator/cluster"],
    "operator/record": ["base/core", "operator/cluster", "operator/job"],
    "operator/progress": ["base/*", "operator/cluster"],
    "operator/apply": ["base/core", "operator/cluster", "operator/plan", "operator/record"],
    "operator/lease": ["base/*", "operator/cluster"],
    "operator/local": ["base/*", "operator/cluster", "operator/job", "operator/record"],
    "operator/kube": ["base/*", "operator/cache", "operator/cluster", "operator/job", "operator/lease",
                      "operator/record"],
    "operator": ["base/*", *_OPERATOR],
    # The operator's process, put together.
    "operator/process": ["base/*", "operator", *_OPERATOR, "operator/kube"],
    "cli": ["base/*", "agent/supervisor", "operator", "operator/*", "runtime/catalog", "runtime/cost",
            "runtime/placement", "runtime/storage", "runtime/checkpoint", "runtime/optimizer"],
    "bench": ["base/*", "runtime/*"],
}

# A folder seen from outside only through some of its headers.
FACADES = {
    "runtime/model": ["runtime/model/device.h", "runtime/model/model.h"],
}

# Single headers that a folder may include beside its layer's: an interface that it implements.
EXTRA_HEADERS = {
    "runtime/coordinator": ["runtime/train/turn.h"],
    "runtime/model": ["runtime/train/gradient.h", "runtime/train/model_layout.h"],
    "runtime/ps": ["runtime/train/gradient.h", "runtime/train/member_synchronizer.h",
                   "runtime/train/row_exchange.h", "runtime/train/synchronizer.h", "runtime/train/turn.h"],
    "runtime/ring": ["runtime/train/member_synchronizer.h", "runtime/train/program_state.h",
                     "runtime/train/step_commit.h", "runtime/train/turn.h"],
    "runtime/session": ["runtime/data/click_scores.h", "runtime/train/gradient.h", "runtime/train/row_exchange.h",
                        "runtime/train/turn.h"],
    "runtime/torch": ["runtime/model/device_network.h", "runtime/model/kernels.h",
                      "runtime/model/libtorch.h", "runtime/model/network.h",
                      "runtime/model/torchscript.h"],
}

# Files that choose the concrete classes and may include everything.
COMPOSITION = [r"(^|/)main\.cc$"]

# Headers of others and the files that may include them (regular expressions over the path).
EXTERNAL = {
    r"(torch|ATen|c10)/": [r"^runtime/torch/", r"^bench/torch_network", r"^tests/runtime/model/"],
    r"(oneapi/)?dnnl": [r"^runtime/model/onednn\.cc$"],
    r"omp\.h": [r"^runtime/model/math_libraries\.cc$"],
    r"cuda_runtime\.h|nccl\.h": [r"^runtime/nccl/"],
    r"cpprest/|pplx/": [r"^operator/kube/http_"],
    r"boost/": [r"^operator/kube/http_", r"^runtime/storage/s3/answers\.cc$"],
    r"yaml-cpp/|valijson/": [r"^operator/job/", r"^tests/operator/job/"],
    r"openssl/": [r"^base/security/", r"^runtime/stream/tls_stream\.cc$", r"^operator/kube/http_", r"^tests/base/security/",
                  r"^tests/operator/kube/", r"^tests/fakes/grpc/"],
    r"httplib\.h": [r"^base/http/", r"^runtime/storage/s3/http\.cc$", r"^tests/"],
    r"farmhash\.h": [r"^runtime/data/"],
    r"zlib\.h": [r"^runtime/data/", r"^tests/"],
    r"CLI/": [r"^cli/", r"^bench/", r"^base/flags/", r"^tests/base/flags/", r"^agent/agent_flags\.", r"^operator/process/operator_flags\.",
              r"(^|/)main\.cc$",
              r"^runtime/[^/]*$", r"^tests/cli/"],
    r"prometheus/": [r"^base/http/", r"^agent/", r"^operator/", r"^tests/"],
    r"spdlog/": [r"^base/core/"],
    r"grpcpp/|grpc/|.*\.grpc\.pb\.h": [
        r"^base/rpc/", r"^runtime/(ps|coordinator|files|task)/", r"^runtime/[^/]*$", r"^agent/", r"^tests/",
        r"^operator/(progress|kube|local)/", r"^operator/[^/]*$", r"^cli/", r"^bench/operator/"],
    # The planner: no clock, no input or output, no JSON.
    r"nlohmann/|fstream|iostream|filesystem|thread|sys/|unistd\.h|fcntl\.h": [r"^(?!operator/plan/)"],
}
