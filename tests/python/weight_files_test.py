#!/usr/bin/env python3
"""Weights of a job's model in plain torch, and of plain torch in a job."""
import ast
import json
import pathlib
import re
import subprocess
import sys
import unittest

import program_runs
from program_runs import BIN, LIMIT, SOURCE, ProgramRuns

# Knows nothing of us. Prints what torch_program.py prints of its network.
PLAIN = """
import sys
import torch
from torch import nn
net = nn.Sequential(nn.Linear(12, 24), nn.BatchNorm1d(24), nn.ReLU(), nn.Dropout(0.1), nn.Linear(24, 4))
net.load_state_dict(torch.load(sys.argv[1]))
print({name: value.float().sum().item() for name, value in net.state_dict().items()})
"""
CHANGED = """
import sys
import torch
state = torch.load(sys.argv[1])
state["0.weight"] += 1
state["1.num_batches_tracked"] += 1000
{more}
torch.save(state, sys.argv[2])
"""


class WeightFilesTest(ProgramRuns):
    program = pathlib.Path(__file__).parent / "torch_program.py"
    batch = 32
    steps = 60

    def interpret(self, *arguments, code=0):
        done = subprocess.run([sys.executable, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                              cwd=self.folder, env={"PYTHONPATH": str(self.site)}, timeout=LIMIT)
        self.assertEqual(done.returncode, code, done.stdout)
        return done.stdout

    def exported(self, run):
        """What plain torch makes of a run's newest checkpoint: (its file, sums of its arrays)."""
        arrays, weights = run.parent / "weights.safetensors", run.parent / "weights.pt"
        subprocess.run([BIN / "trainyard", "checkpoint", "export", run, "-o", arrays], check=True, timeout=LIMIT,
                       stdout=subprocess.DEVNULL)
        self.interpret("-m", "trainyard.torch", arrays, weights)
        return weights, ast.literal_eval(self.interpret("-c", PLAIN, weights))

    def trained(self, name, **given):
        """The run, and the sums of its worker-0's arrays."""
        run, launcher = self.start(name, **given)
        self.assertIn("result: succeeded", self.finish(run, launcher), self.logs(run))
        told = (run / "tasks/worker-0/task.log").read_text()
        return run, ast.literal_eval(re.search(r"done program: (.*)", told)[1])

    def test_what_was_trained_is_loaded_by_plain_torch(self):
        for servers, program in ((2, ""), (0, "own")):
            run, own = self.trained(f"trained-{servers}", servers=servers, PROGRAM=program)
            _, plain = self.exported(run)
            self.assertEqual(plain, own)
        done = subprocess.run([BIN / "trainyard", "checkpoint", "evaluate", run], stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              text=True, timeout=LIMIT)
        self.assertIn("only the program itself can evaluate its model", done.stdout)
        self.assertEqual(done.returncode, 2, done.stdout)

    def begun(self, name, path, **given):
        """A job that begins with `path` and whose update changes nothing."""
        self.steps = 1
        self.optimizer = "{name: SGD, learningRate: 1.0e-30}"
        return self.trained(name, fields=f"initFrom: {path}", **given)

    def changed(self, source, more=""):
        target = self.folder / f"changed-{len(list(self.folder.glob('changed-*')))}.pt"
        self.interpret("-c", CHANGED.format(more=more), source, target)
        arrays = target.with_suffix(".safetensors")
        self.interpret("-m", "trainyard.torch", target, arrays)
        return arrays

    def test_a_job_begins_with_what_plain_torch_has_saved(self):
        run, own = self.trained("first")
        weights, _ = self.exported(run)
        wanted = own["0.weight"] + 12 * 24
        for servers in (2, 0):
            # Weights of 16 bits are widened.
            arrays = self.changed(weights, "state['4.weight'] = state['4.weight'].half()" if servers else "")
            _, begun = self.begun(f"begun-{servers}", arrays, servers=servers)
            self.assertAlmostEqual(begun["0.weight"], wanted, delta=1e-3)
            self.assertAlmostEqual(begun["4.weight"], own["4.weight"], delta=1e-2 if servers else 0)
            self.assertEqual(begun["1.num_batches_tracked"], own["1.num_batches_tracked"] + 1000 + 1)

    def test_a_job_begins_with_another_run(self):
        for servers in (2, 0):
            run, own = self.trained(f"other-{servers}", servers=servers)
            _, begun = self.begun(f"from-{servers}", run, servers=servers)
            self.assertEqual(begun["4.weight"], own["4.weight"])
            self.assertEqual(begun["1.num_batches_tracked"], own["1.num_batches_tracked"] + 1)
            self.steps = WeightFilesTest.steps

    def test_what_a_job_cannot_begin_with(self):
        run, _ = self.trained("good")
        weights, _ = self.exported(run)
        for what, (path, reason) in {
            "missing": (self.changed(weights, "del state['4.bias']"), r"has no array 4\.bias, the model's is F32 \[4\]"),
            "more": (self.changed(weights, "state['5.bias'] = state['4.bias'].clone()"), r"array 5\.bias is none of the model's"),
            "shape": (self.changed(weights, "state['4.bias'] = torch.zeros(5)"),
                      r"array 4\.bias is F32 \[5\], the model's is F32 \[4\]"),
            "type": (self.changed(weights, "state['1.num_batches_tracked'] = torch.tensor(1.0)"),
                     r"array 1\.num_batches_tracked is F32 \[\], the model's is I64 \[\]"),
            "absent": (self.folder / "absent.safetensors", "absent.safetensors: No such file"),
        }.items():
            with self.subTest(what):
                run, launcher = self.start(f"bad-{what}", retries=1, fields=f"initFrom: {path}")
                output = self.finish(run, launcher, code=1)
                self.assertRegex(output + self.logs(run), f"training.initFrom: .*{reason}")

    def test_what_is_no_file_of_weights(self):
        (self.folder / "text.safetensors").write_text("a text that is no header")
        self.assertIn("text.safetensors: is no safetensors file",
                      self.interpret("-m", "trainyard.torch", "text.safetensors", "x.pt", code=1))
        self.assertIn("No such file", self.interpret("-m", "trainyard.torch", "none.safetensors", "x.pt", code=1))
        self.assertIn("one of the two files", self.interpret("-m", "trainyard.torch", "a.pt", "b.pt", code=1))
        self.assertIn("python3 -m trainyard.torch", self.interpret("-m", "trainyard.torch", code=2))
        self.interpret("-c", "import torch; torch.save({'rate': 3}, 'rate.pt')")
        self.assertIn("rate is a int", self.interpret("-m", "trainyard.torch", "rate.pt", "rate.safetensors", code=1))

    def test_tied_and_odd_tensors(self):
        self.interpret("-c", """if True:
            import torch, trainyard.torch as tyt
            one = torch.arange(6.).reshape(2, 3)
            state = {"a": one, "tied": one, "t": one.t(), "none": torch.zeros(0, 2), "b": torch.tensor([True, False]),
                     "h": torch.tensor(1.5, dtype=torch.bfloat16)}
            tyt.save_weights(state, "odd.safetensors")
            read = tyt.load_weights("odd.safetensors")
            assert sorted(read) == ["a", "b", "h", "none", "t"], sorted(read)
            assert all(torch.equal(read[name], state[name]) and read[name].dtype == state[name].dtype for name in read)
            data = open("odd.safetensors", "rb").read()
            open("short.safetensors", "wb").write(data[:-1])
            try:
                tyt.load_weights("short.safetensors")
                raise SystemExit("taken")
            except tyt.HorovodInternalError:
                raise
            except Exception as error:
                assert "is damaged" in str(error), error
        """)

    def test_rows_of_tables_are_no_layers(self):
        self.interpret("-c", """if True:
            import torch, trainyard.torch as tyt
            of_table = {"deep/ids": torch.arange(3), "deep/rows": torch.zeros(3, 2), "deep/rows/momentum": torch.zeros(3, 2),
                        "deep/steps": torch.zeros(3, dtype=torch.int32), "deep/counts": torch.zeros(3, dtype=torch.int32)}
            net = {"deep.weight": torch.ones(2), "deep.weight/momentum": torch.ones(2)}
            tyt.save_weights({**net, **of_table}, "tables.safetensors")
            read = tyt.load_weights("tables.safetensors")
            assert list(read) == ["deep.weight"], sorted(read)
        """)

    def test_headers_that_say_what_cannot_be(self):
        self.interpret("-c", """if True:
            import json, struct, trainyard.torch as tyt
            from trainyard import InvalidArgument
            def entry(**changed):
                return {"dtype": "F32", "shape": [2], "data_offsets": [0, 8], **changed}
            wrong = [entry(dtype="F8"), entry(dtype=3), entry(shape=[-2]), entry(shape=[2.0]), entry(shape=[10**18]),
                     entry(data_offsets=[0]), entry(data_offsets=[8, 0]), entry(data_offsets=[0, 8e9]),
                     entry(shape=[10**9], data_offsets=[0, 4 * 10**9]), {}, 7]
            for each in wrong:
                text = json.dumps({"w": each}).encode()
                open("wrong.safetensors", "wb").write(struct.pack("<Q", len(text)) + text + b"12345678")
                try:
                    tyt.load_weights("wrong.safetensors")
                    raise SystemExit(f"taken: {each}")
                except InvalidArgument as error:
                    assert "wrong.safetensors: is " in str(error), error
        """)

    def plan(self, job, *flags, code=0):
        done = subprocess.run([BIN / "trainyard", "plan", "-f", job, *flags], stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True, timeout=LIMIT)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        return done.stdout if code == 0 else done.stderr

    def test_what_it_declares_is_planned(self):
        run, _ = self.trained("planned")
        job = run.parent / "job.yaml"
        asked = json.loads(self.plan(job, "--program", "-o", "json"))
        self.assertEqual(asked["parameters"], 12 * 24 + 24 + 2 * 24 + 24 * 4 + 4)
        self.assertEqual(json.loads(self.plan(job, "--declared", run, "-o", "json")), asked)
        self.assertEqual(json.loads(self.plan(job, "--declared", run / "checkpoints/model.safetensors", "-o", "json")),
                         asked)
        self.assertIn("--program runs it until it has", self.plan(job, code=2))
        self.assertIn("none: No such file or directory", self.plan(job, "--declared", "none", code=2))
        text = job.read_text()
        ends = run.parent / "ends.yaml"
        ends.write_text(text.replace(str(self.program), str(SOURCE / "tests/python/absent.py")))
        self.assertRegex(self.plan(ends, "--program", code=2), "the program ended before it opened a session: exit code 2")
        self.assertIn("excludes", self.plan(job, "--program", "--declared", run, code=2))

    def test_a_program_that_is_planned_finds_its_volumes(self):
        run, _ = self.trained("volumes")
        job = run.parent / "volumes.yaml"
        text = job.parent.joinpath("job.yaml").read_text()
        started = f"[{sys.executable}, {self.program}]"
        self.assertIn(started, text)
        script = "test -d $(TRAINYARD_VOLUME_DATA) && exec " + f"{sys.executable} {self.program}"
        job.write_text(text.replace(started, json.dumps(["sh", "-c", script])).replace(
            "spec:\n", "spec:\n  volumes: [{name: data, mountPath: /data}]\n", 1))
        self.assertIn("volume 'data': give --volume data=DIR", self.plan(job, "--program", code=2))
        self.assertIn("the program ended before", self.plan(job, "--program", "--volume", "data=absent", code=2))
        asked = json.loads(self.plan(job, "--program", "--volume", f"data={self.folder}", "-o", "json"))
        self.assertGreater(asked["parameters"], 0)


if __name__ == "__main__":
    program_runs.require_torch()
    unittest.main(verbosity=2)
