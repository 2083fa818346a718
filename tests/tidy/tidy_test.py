#!/usr/bin/env python3
"""Every rule of tidy fails on a small bad sample and passes its good twin."""
import unittest

import rules

# rule -> [(files, number of breaches)]
SAMPLES = {
    "layers": [
        ({"runtime/ps/a.cc": '#include "runtime/collective/ring.h"\n'}, 1),
        ({"runtime/collective/a.cc": '#include "runtime/ps/client.h"\n'}, 1),
        ({"runtime/tensor/a.h": '#include "runtime/catalog/variable.h"\n'}, 1),
        ({"runtime/catalog/a.h": '#include "runtime/tensor/kernels.h"\n'}, 0),
        ({"agent/service/a.cc": '#include "runtime/catalog/variable.h"\n'}, 1),
        ({"operator/plan/a.cc": '#include "operator/job/job.h"\n'}, 1),
        ({"operator/plan/a.cc": '#include "operator/cluster/cluster.h"\n'}, 0),
        ({"operator/plan/a.cc": '#include "base/process/pipe.h"\n'}, 1),
        ({"operator/apply/a.cc": '#include "operator/local/local_cluster.h"\n'}, 1),
        ({"operator/controller.cc": '#include "operator/local/local_cluster.h"\n'}, 1),
        ({"operator/main.cc": '#include "operator/local/local_cluster.h"\n'}, 0),
        ({"cli/a.cc": '#include "runtime/model/model.h"\n'}, 1),
        ({"cli/a.cc": '#include "runtime/placement/placement.h"\n#include "operator/job/job.h"\n'}, 0),
        ({"base/core/a.cc": '#include "base/process/pipe.h"\n'}, 1),
        ({"runtime/train/a.cc": '#include "runtime/model/model.h"\n'}, 1),
        ({"runtime/compute/a.cc": '#include "runtime/model/model.h"\n'}, 0),
        ({"runtime/compute/a.cc": '#include "runtime/model/mnist_cnn.h"\n'}, 1),
        ({"runtime/model/a.h": '#include "runtime/train/gradient.h"\n'}, 0),
        ({"runtime/model/a.h": '#include "runtime/train/synchronizer.h"\n'}, 1),
        ({"runtime/torch/a.cc": '#include "runtime/model/network.h"\n'}, 0),
        ({"runtime/torch/a.cc": '#include "runtime/model/simulated.h"\n'}, 1),
        ({"runtime/ps/a.cc": '#include "runtime/train/synchronizer.h"\n'}, 0),
        ({"runtime/ps/a.cc": '#include "runtime/compute/trainer.h"\n'}, 1),
        ({"runtime/ps/a.cc": '// #include "runtime/collective/ring.h"\n'}, 0),
        ({"runtime/surprise/a.cc": "\n", "elsewhere/a.cc": "\n"}, 1),
    ],
    "paths": [
        ({"base/core/a.cc": '#include "base/core/gone.h"\n'}, 1),
        ({"base/core/a.cc": '#include "a.h"\n', "base/core/a.h": "\n"}, 1),
        ({"base/core/a.cc": '#include "base/core/a.h"\n', "base/core/a.h": "\n"}, 0),
    ],
    "external": [
        ({"runtime/train/a.cc": "#include <torch/torch.h>\n"}, 1),
        ({"runtime/model/a.h": "#include <torch/torch.h>\n"}, 1),
        ({"runtime/model/a.cc": "#include <torch/torch.h>\n"}, 1),
        ({"runtime/torch/a.cc": "#include <torch/torch.h>\n"}, 0),
        ({"runtime/model/network.cc": "#include <dnnl.h>\n"}, 1),
        ({"runtime/model/onednn.cc": "#include <dnnl.h>\n"}, 0),
        ({"operator/local/a.cc": '#include "yaml-cpp/yaml.h"\n'}, 1),
        ({"operator/job/a.cc": "#include <valijson/schema.hpp>\n"}, 0),
        ({"agent/a.cc": "#include <openssl/evp.h>\n"}, 1),
        ({"operator/kube/watch.cc": "#include <cpprest/http_client.h>\n"}, 1),
        ({"operator/kube/http_client.cc": "#include <cpprest/http_client.h>\n"}, 0),
        ({"operator/plan/a.cc": "#include <fstream>\n"}, 1),
        ({"operator/plan/a.cc": '#include "nlohmann/json.hpp"\n'}, 1),
        ({"runtime/placement/a.cc": "#include <grpcpp/grpcpp.h>\n"}, 1),
        ({"runtime/optimizer/a.cc": '#include "trainyard/v1/agent.grpc.pb.h"\n'}, 1),
    ],
    "length": [
        ({"base/core/a.cc": "int a;\n" * 501}, 1),
        ({"base/core/a.cc": "int a;\n" * 500}, 0),
        ({"tests/data/golden.txt": "1\n" * 5000}, 0),
    ],
    "registered": [
        ({"base/core/a.cc": "", "base/core/CMakeLists.txt": "ty_library(SRCS b.cc)"}, 1),
        ({"base/core/a.cc": "", "base/core/CMakeLists.txt": "# a.cc"}, 1),
        ({"base/core/a.cc": "", "base/core/CMakeLists.txt": "ty_library(SRCS a.cc)"}, 0),
        ({"base/core/x/a.cc": "", "base/core/CMakeLists.txt": "ty_library(SRCS x/a.cc)"}, 0),
        ({"base/core/x/a.cc": "", "base/core/CMakeLists.txt": "ty_library(SRCS a.cc)"}, 1),
        ({"tests/a_test.py": ""}, 1),
    ],
    "environment": [({"base/core/a.cc": 'auto v = std::getenv("HOME");\n'}, 1),
                    ({"base/core/a.cc": 'auto v = "getenv";  // getenv\n'}, 0)],
    "exit": [({"base/core/a.cc": "std::exit(1);\n::_exit(1);\nexit (2);\nstd::abort();\n"}, 4),
             ({"base/core/a.cc": "onExit(1); a.exit(); step->abort(2); void abort(int);\n"}, 0)],
    "sleep": [({"base/core/a.cc": "std::this_thread::sleep_for(1s);\nusleep(3);\n::sleep(1);\n"}, 3),
              ({"base/core/a.cc": "/* sleep(1) */ asleep(1);\n"}, 0)],
    "clock": [({"base/core/a.cc": "auto t = std::chrono::steady_clock::now();\n::time(nullptr);\n"}, 2),
              ({"base/core/a.cc": "clock.now(); TimePoint(std::chrono::steady_clock::time_point());\n"}, 0)],
    "random": [({"base/core/a.cc": "std::random_device d;\nint x = rand();\nstd::mt19937_64 g;\n"}, 3),
               ({"base/core/a.cc": "operand(1);\n"}, 0)],
    "regex": [({"base/core/a.cc": "#include <regex>\nstd::regex r;\n"}, 2)],
    "detach": [({"base/core/a.cc": "thread.detach();\n"}, 1)],
    "new": [({"base/core/a.cc": "auto* p = new Thing();\n"}, 1),
            ({"base/core/a.cc": "std::unique_ptr<Task> task(new Task(options));\n"
                                "return std::unique_ptr<Task>(new Task);\ntask_.reset(new Task);\n"}, 0),
            ({"base/core/a.cc": "// a new Thing\nint news = 1; renew (x);\n"}, 0)],
    "targets": [({"tests/CMakeLists.txt": "ty_test(NAME rows_test SRCS a.cc)\n",
                  "tests/multiproc/CMakeLists.txt": "if(TRAINYARD_WITH_TORCH)\n  ty_test(NAME rows_test SRCS b.cc)\n"}, 1),
                ({"tests/CMakeLists.txt": "ty_test(NAME up SRCS a.cc)\nty_use_cluster(NAME up)\n"}, 0)],
    "namespace": [({"operator/a.h": "namespace operator {\n"}, 1),
                  ({"operator/a.h": "namespace control {\n"}, 0)],
    "tabs": [({"base/core/a.cc": "\tint a;\n", "Makefile": "a:\n\tb\n"}, 1)],
    "todo": [({"docs/a.md": "TODO: write\n", "base/core/a.cc": "// FIXME\n"}, 2)],
    "machine": [({"docs/a.md": "see /home/me/x\n", "a.txt": '"/wo' + 'rk/main"\n'}, 2),
                ({"docs/a.md": "a job's /data/wo" + "rk/ and tests/home/x\n"}, 0)],
    "numbers": [({"docs/a.md": "as issue 3 says\n", "base/core/a.cc": "// Issue #12\n"}, 2),
                ({"docs/a.md": "an issue of 2 cores\n"}, 0)],
}


class Rules(unittest.TestCase):
    def test_every_rule_has_a_sample_that_fails(self):
        for name in rules.RULES:
            self.assertTrue(any(count for _, count in SAMPLES.get(name, [])), name)

    def test_samples(self):
        for name, samples in SAMPLES.items():
            for files, count in samples:
                with self.subTest(rule=name, files=files):
                    found = list(rules.RULES[name](rules.Tree(files)))
                    self.assertEqual(len(found), count, found)

    def test_a_breach_says_file_line_and_rule(self):
        tree = rules.Tree({"base/core/a.cc": "int a;\nint b = rand();\n",
                           "base/core/CMakeLists.txt": "a.cc"})
        self.assertEqual(rules.run(tree, []),
                         ["base/core/a.cc:2: take random numbers from base/core/rng.h [random]"])

    def test_allowances_name_rule_and_path(self):
        tree = rules.Tree({"base/core/a.cc": "int b = rand();\n", "base/core/CMakeLists.txt": "a.cc"})
        allowed = rules.allowances("# comment\nrandom base/core/*  reason\n")
        self.assertEqual(rules.run(tree, allowed), [])
        self.assertEqual(len(rules.run(tree, rules.allowances("random agent/*  reason"))), 1)
        with self.assertRaises(ValueError):
            rules.allowances("randomness base/core/*  no such rule")


class StripCode(unittest.TestCase):
    def test_comments_and_literals_go_and_lines_stay(self):
        text = 'int a = 1\'000;  // rand()\n/* rand()\n */ auto s = "rand()"; auto r = R"x(rand()\n)x";\n'
        stripped = rules.strip_code(text)
        self.assertNotIn("rand", stripped)
        self.assertEqual(stripped.count("\n"), text.count("\n"))
        self.assertIn("1'000;", stripped)

    def test_includes_survive(self):
        self.assertEqual(list(rules.includes(rules.strip_code('#include "a/b.h"  // why\n'))),
                         [(1, "a/b.h", True)])


if __name__ == "__main__":
    unittest.main()
