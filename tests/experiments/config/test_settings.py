import json
from pathlib import Path

import pytest

import attention
from configs import base
from experiments.config import checks, settings
from tests.experiments import small

CONFIGS = Path(base.__file__).parent
WINDOW = str(CONFIGS / "window128.py")


def load(path, *fields):
    return settings.load(str(path), [f"--config.{field}" for field in fields])


def refusal(path, *fields):
    with pytest.raises(settings.UsageError) as error:
        load(path, *fields)
    assert "\n" not in str(error.value)
    return str(error.value)


FILES = [path for path in sorted(CONFIGS.glob("[a-z]*.py")) if "def get_config(" in path.read_text()]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_config_loads_and_is_named_after_its_file(path):
    config = load(path)
    assert config.name == path.stem or config.name == f"{path.stem}-{config.attention.name}"
    assert settings.identity(config) == settings.identity(load(path))


def test_configs_of_bytes_differ_only_in_the_attention():
    for name in ("full", "dense", "window128", "pooled", "lsh"):
        changed = settings.differences(load(CONFIGS / f"{name}.py"), base.get_config())
        assert {field for field in changed if not field.startswith("attention.")} <= {"name"}, name


def test_the_argument_of_recall_is_the_attention():
    config = load(f"{CONFIGS / 'recall.py'}:window")
    assert (config.name, config.attention.name) == ("recall-window", "window")


def test_all_fields_are_resolved_and_stay_so():
    config = load(WINDOW)
    assert config.attention.to_dict() == {
        "name": "window", "window_size": 128, "scale": None, "temperature": 1.0, "softcap": None,
        "dropout_rate": 0.0, "query_block": None, "key_block": None,
    }  # fmt: skip
    assert config.task.num_test == 128
    assert json.loads(json.dumps(config.to_dict())) is not None
    with pytest.raises(AttributeError):
        config.model.other = 1


def test_overrides_of_every_type():
    config = load(
        WINDOW, "seeds=0,3", "model.num_layers=3", "optimizer.learning_rate=1", "model.remat=true",
        "optimizer.schedule=rsqrt", "task.eval_lengths=(64,)", "train.steps=70", "train.steps=80",
    )  # fmt: skip
    assert config.seeds == (0, 3) and config.task.eval_lengths == (64,)
    assert config.model.num_layers == 3 and config.model.remat is True
    assert config.optimizer.learning_rate == 1.0 and config.optimizer.schedule == "rsqrt"
    assert config.train.steps == 80
    assert load(WINDOW, "seeds=3").seeds == (3,)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("attention.scale", 0.5), ("attention.query_block", 32), ("optimizer.clip_norm", 0.5),
        ("model.value_dim", 8), ("task.data_dir", str(CONFIGS)),
    ],
)  # fmt: skip
def test_what_may_be_none_can_be_set_and_set_back(field, value, tmp_path):
    section, name = field.split(".")
    assert load(WINDOW, f"{field}={value}")[section][name] == value
    assert load(WINDOW, f"{field}=None")[section][name] is None
    file = tmp_path / "mine.py"
    file.write_text(
        "from configs import base\n"
        f"def get_config():\n    c = base.get_config()\n    c.{section}.unlock()\n    c.{field} = {value!r}\n"
        f"    c.attention.name = 'window'\n    return c\n"
    )
    assert load(file)[section][name] == value
    assert load(file, f"{field}=None")[section][name] is None


def test_another_name_drops_the_fields_of_the_old_one():
    config = load(WINDOW, "attention.num_hashes=2", "attention.name=lsh")
    assert config.attention.num_hashes == 2 and "window_size" not in config.attention
    assert load(WINDOW, "attention.window_size=7", "attention.name=pooled").attention.window_size == 7
    assert load(WINDOW, "attention.name=window").attention.window_size == 128
    assert load(WINDOW, "task.name=recall").task.num_pairs == 32


def test_differences_name_what_is_not_a_default():
    defaults = base.get_config()
    assert settings.differences(load(CONFIGS / "base.py"), defaults) == {}
    assert settings.differences(load(WINDOW), defaults) == {"name": "window128", "attention.name": "window"}
    assert settings.differences(load(WINDOW, "attention.window_size=9", "train.steps=30"), defaults) == {
        "name": "window128", "attention.name": "window", "attention.window_size": 9, "train.steps": 30,
    }  # fmt: skip


CHANGED = {
    "model.layers": "attention,gru",
    "attention.softcap": 5.0, "task.num_test": 7, "model.num_layers": 3, "model.num_heads": 8,
    "model.num_kv_heads": 1, "model.model_dim": 16, "model.head_dim": 8, "model.value_dim": 8,
    "model.mlp_dim": 16, "model.norm": "post", "model.positions": "none", "model.conv_width": 5,
    "model.dropout_rate": 0.1, "model.init": "he", "model.init_std": 0.1, "model.max_length": 3000,
    "model.compute_dtype": "bfloat16", "model.remat": True, "optimizer.learning_rate": 1.0,
    "optimizer.schedule": "constant", "optimizer.warmup_steps": 3, "optimizer.weight_decay": 0.3,
    "optimizer.beta1": 0.5, "optimizer.beta2": 0.5, "optimizer.eps": 0.5, "optimizer.clip_norm": 0.5,
    "optimizer.learning_rate_grid": "(0.1,)", "optimizer.l2": 0.1, "optimizer.ema_decay": 0.9,
    "train.batch_size": 3, "train.steps": 30, "train.eval_every": 3, "train.num_microbatches": 2,
    "train.patience": 2, "train.label_smoothing": 0.1, "train.entropy_penalty": 0.1,
    "train.flops": 2e11, "train.deterministic": False,
    "eval.batch_size": 4, "mesh.data": 2, "mesh.sequence": 2,
}  # fmt: skip
INCIDENTAL = {
    "name": "other", "seeds": 5, "train.checkpoint_every": 7, "train.log_every": 7,
    "train.seeds_at_once": 2, "eval.timed_steps": 3, "eval.diagnose": True,
    "eval.sample_tokens": 5,
}  # fmt: skip


def test_the_identity_follows_what_decides_the_numbers():
    first = settings.identity(load(WINDOW))
    changed = [settings.identity(load(WINDOW, f"{field}={value}")) for field, value in CHANGED.items()]
    assert len({first, *changed}) == 1 + len(CHANGED)
    for field, value in INCIDENTAL.items():
        assert settings.identity(load(WINDOW, f"{field}={value}")) == first
    # train.stop_when_solved needs a task that can be solved; then every field of base is accounted for.
    assert {*CHANGED, *INCIDENTAL, "train.stop_when_solved"} - {"attention.softcap", "task.num_test"} == set(
        checks.RULES
    )
    recall = [settings.identity(small.load(f"train.stop_when_solved={value}")) for value in (True, False)]
    assert len(set(recall)) == 2


def test_layers_have_mixers_in_turn(tmp_path):
    config = load(WINDOW, "model.layers=attention,ssm,lsh", "model.num_layers=3", "mixers.ssm.state_dim=4")
    assert [mixer.name for mixer in settings.mixers(config)] == ["window", "ssm", "lsh"]
    assert config.mixers.ssm.to_dict() == {"name": "ssm", "state_dim": 4}
    assert config.mixers.lsh.num_hashes == attention.hyperparameters("lsh")["num_hashes"]
    changed = settings.differences(config, base.get_config())
    assert changed["mixers.ssm.state_dim"] == 4 and changed["mixers.lsh.name"] == "lsh"
    assert "mixers.lsh.num_hashes" not in changed
    back = settings.recorded(json.loads(json.dumps(config.to_dict())))
    assert settings.identity(back) == settings.identity(config)
    assert settings.mixers(back) == settings.mixers(config)

    file = tmp_path / "mine.py"
    file.write_text(
        "from ml_collections import ConfigDict\nfrom configs import base\ndef get_config():\n"
        "    c = base.get_config()\n    c.model.layers = 'attention,near'\n"
        "    c.mixers = ConfigDict({'near': {'name': 'window', 'window_size': 7}})\n    return c\n"
    )
    assert settings.mixers(load(file)) == (attention.Full(), attention.Window(window_size=7))
    assert settings.mixers(load(file, "mixers.near.name=gru"))[1].name == "gru"
    assert load(file, "model.layers=attention").mixers.to_dict() == {}
    assert len({settings.identity(load(file, *each)) for each in ([], ["mixers.near.window_size=8"])}) == 2


def test_what_was_recorded_before_layers_could_differ_is_the_same_cell():
    """Its folder is named by a hash that is kept with results."""
    fields = load(WINDOW).to_dict()
    del fields["mixers"], fields["model"]["layers"]
    assert settings.identity(settings.recorded(fields)) == settings.identity(load(WINDOW)) == "00ac6f76d4"


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        (["attention.name=gruu"], "unknown attention 'gruu'; known are full, "),
        (["attention.name=gru", "attention.window_size=3"], "there is no field config.attention.window_size"),
        (["model.layers=gru"], "must be one or more labels with commas between, one of them attention"),
        (["model.layers=attention,"], "config.model.layers='attention,' is not accepted"),
        (["model.layers=attention,near"], "config.mixers.near: unknown attention 'near'; known are"),
        (["model.layers=attention,ssm", "mixers.ssm.state_dim=0"], "config.mixers.ssm: ssm: state_dim=0"),
        (["model.layers=attention,ssm", "mixers.ssm.state=1"], "did you mean config.mixers.ssm.state_dim"),
        (["model.layers=attention,gru,ssm"], "must be no longer than model.num_layers=2"),
        (["mixers.gru.name=gru"], "there is no field config.mixers.gru.name"),
        (["attention.name=gru", "model.num_kv_heads=1"], "must be None with attention gru"),
        (["attention.name=gru", "model.value_dim=3"], "must be None with attention gru"),
        (["model.layers=attention,gru", "mesh.sequence=2"], "mesh.sequence must be 1 with attention gru"),
        (["model.layers=attention,gru", "train.entropy_penalty=1"], "gru has no softmax"),
        (["model.layers=attention,linear", "task.name=text"], None),
        (["model.layers=attention,gru", "model.num_kv_heads=1"], None),
    ],
)
def test_mixers_that_do_not_fit(fields, words):
    if words is None:
        load(WINDOW, *fields)
    else:
        assert words in refusal(WINDOW, *fields)


def test_sections_that_no_layer_asks_for(tmp_path):
    file = tmp_path / "mine.py"
    head = "from ml_collections import ConfigDict\nfrom configs import base\ndef get_config():\n"
    for mixers, words in (
        ("ConfigDict({'near': {'name': 'window'}})", "config.mixers.near is of no layer"),
        ("ConfigDict({'near': 3})", "config.mixers must be a ConfigDict of ConfigDicts"),
    ):
        file.write_text(f"{head}    c = base.get_config()\n    c.mixers = {mixers}\n    return c\n")
        assert words in refusal(file)


def test_a_rate_beside_a_grid_decides_nothing():
    alone, other, with_grid, with_both = (
        settings.identity(small.load(*(f"optimizer.learning_rate{field}" for field in fields)))
        for fields in ((), ("=0.5",), ("_grid=(0.1,)",), ("=0.5", "_grid=(0.1,)"))
    )
    assert with_grid == with_both and len({alone, other, with_grid}) == 3


def test_only_overrides_are_understood():
    for argument in ("config.model.remat=1", "--config.model.remat", "--steps=3", "--config=x"):
        with pytest.raises(settings.UsageError, match=r"written --config\.field=value"):
            settings.load(WINDOW, [argument])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("x = ", "SyntaxError"),
        ("x = 1", "AttributeError"),
        ("def get_config(): return 3", "gives a int, not a ConfigDict"),
        ("def get_config(): return {}['x']", "KeyError"),
        (
            "from configs import base\ndef get_config():\n    c = base.get_config()\n    c.modle = 1",
            "there is no field modle; did you mean model?",
        ),
        (
            "from configs import base\ndef get_config():\n    c = base.get_config()\n    c.train.steps = 'x'",
            "steps=x is not accepted: it must be of type int",
        ),
        (
            "from ml_collections import ConfigDict\ndef get_config(): return ConfigDict({'attention': {'name'"
            ": 'full'}})",
            "config.task must be a ConfigDict with a name",
        ),
        (
            "from ml_collections import ConfigDict\ndef get_config(): return ConfigDict({'attention': {'name'"
            ": 'full'}, 'task': {'name': 'bytes'}})",
            "config.name is missing",
        ),
        ("import sys\nsys.exit(0)", "SystemExit: 0"),
        ("def get_config(): exit('bye')", "SystemExit: bye"),
        (
            "from ml_collections import FrozenConfigDict\ndef get_config(): return FrozenConfigDict()",
            "gives a FrozenConfigDict, not a ConfigDict",
        ),
        (
            "from ml_collections import ConfigDict\ndef get_config(): return ConfigDict({'train': {3: 1}})",
            "the field 3 is named by no string",
        ),
        (
            "from ml_collections import ConfigDict, config_dict\ndef get_config():\n"
            "    return ConfigDict({'train': {'steps': config_dict.required_placeholder(int)}})",
            "the field train.steps has no value",
        ),
    ],
)
def test_files_that_are_no_configs(tmp_path, text, words):
    file = tmp_path / "mine.py"
    file.write_text(text)
    assert words in refusal(file)


def test_a_missing_file_and_a_missing_argument(tmp_path):
    assert "there is no file 'nowhere.py'" in refusal("nowhere.py")
    file = tmp_path / "mine.py"
    file.write_text("def get_config(attention): pass")
    assert f"wants an argument, --config={file}:ARGUMENT" in refusal(file)
