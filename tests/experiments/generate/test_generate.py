"""What a run's model writes, and the command."""

import dataclasses
import io

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from rich.console import Console

import launch
from experiments import files, records
from experiments.generate import __main__ as command
from experiments.generate.generate import generate
from experiments.generate.sampling import Sampling
from experiments.running import screen
from experiments.training import train, trained
from tests.experiments.runs import ROOT, only_folder

GREEDY = Sampling(temperature=0)
SMALL = {
    "task.length": 32, "task.num_validation": 2, "task.num_test": 2, "model.num_layers": 1,
    "model.model_dim": 8, "model.head_dim": 8, "model.mlp_dim": 8, "train.steps": 3, "train.eval_every": 3,
    "optimizer.warmup_steps": 1, "eval.timed_steps": 0, "eval.sample_tokens": 9,
}  # fmt: skip


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    """A folder of sources, each split with some."""
    folder = tmp_path_factory.mktemp("sources")
    for index in range(60):
        (folder / f"m{index}.py").write_text(f"def f{index}(x):\n    return x + {index}\n" * 4)
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory, text, compiled_once):
    workdir = tmp_path_factory.mktemp("written")
    fields = [f"--config.{name}={value}" for name, value in (SMALL | {"task.data_dir": text}).items()]
    assert launch.main([f"--config={ROOT}/configs/window128.py", f"--workdir={workdir}", *fields]) == 0
    return only_folder(workdir)


def test_greedy_is_what_the_whole_pass_finds_likeliest(run):
    model = trained.load(run)
    prompts = [model.task.encode("def f(x):"), model.task.encode("de")]
    written = generate(model, prompts, 6, GREEDY)
    built = nnx.merge(train.graph(model.config, model.task), model.params)
    for prompt, tokens in zip(prompts, written, strict=True):
        whole = np.concatenate([prompt, tokens])
        likeliest = np.asarray(built(jnp.asarray(whole[None]))).argmax(-1)[0]
        assert tokens.tolist() == likeliest[prompt.size - 1 : -1].tolist()


def test_a_row_is_written_as_it_is_alone(run):
    model, drawn = trained.load(run), Sampling(temperature=0.7, top_k=50)
    prompts = [model.task.encode("def f(x):"), model.task.encode("de")]
    both = generate(model, prompts, 5, drawn, seed=4)
    assert both[0].tolist() == generate(model, prompts[:1], 5, drawn, seed=4)[0].tolist()
    assert both.tolist() != generate(model, prompts, 5, drawn, seed=5).tolist()


def test_a_run_ends_with_a_sample(run, capsys):
    record = files.read_json(run / records.RECORD)
    sample = record["sample"]
    assert (sample["prompt"], sample["seed"]) == ("def ", 0)
    tokens = generate(trained.load(run), [np.frombuffer(b"def ", np.uint8).astype(np.int32)], 9,
                      Sampling(temperature=sample["temperature"], top_p=sample["top_p"]))  # fmt: skip
    assert sample["text"] == trained.load(run).task.write(tokens[0])


def test_what_would_command_the_terminal_is_not_shown():
    out = Console(file=io.StringIO())
    screen.sample(out, {"seed": 0, "prompt": "a", "text": "\x1b[31mb\n", "temperature": 1.0, "top_p": 1.0})
    shown = out.file.getvalue()
    assert "\x1b" not in shown and "a\ufffd[31mb" in shown


def test_the_command_writes(run, capsys):
    asked = [str(run), "--prompt", "def f", "--tokens", "4"]
    assert command.main([*asked, "--samples", "2"]) == 0
    texts = capsys.readouterr().out.split("\n---\n")
    assert len(texts) == 2 and all(text.startswith("def f") for text in texts)
    assert command.main([*asked, "--greedy"]) == 0
    greedy = generate(trained.load(run), [trained.load(run).task.encode("def f")], 4, GREEDY)[0]
    assert capsys.readouterr().out == "def f" + trained.load(run).task.write(greedy) + "\n"


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        (["--prompt", ""], "at least 1"),
        (["--prompt", "a", "--tokens", "0"], "num_tokens=0"),
        (["--prompt", "a", "--top_p", "0"], "top_p=0.0"),
        (["--prompt", "a", "--top_k", "0"], "top_k=0"),
        (["--prompt", "a", "--temperature", "-1"], "temperature=-1.0"),
        (["--prompt", "a", "--of", "7"], "seed 7"),
    ],
)
def test_wrong_use_is_refused_in_a_line(run, asked, said, capsys):
    assert command.main([str(run), *asked]) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


def test_a_model_that_is_no_number_writes_nothing(run):
    model = trained.load(run)
    broken = dataclasses.replace(model, params=jax.tree.map(lambda x: x * np.nan, model.params))
    with pytest.raises(ValueError, match="not finite"):
        generate(broken, [np.array([65], np.int32)], 2, GREEDY)
