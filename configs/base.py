"""Every field there is, with its default. Other configs say only how they differ from this one."""

from typing import Any

from ml_collections import ConfigDict, config_dict


def get_config() -> Any:
    """Full attention on `bytes`. Fields made by `optional` may also be None."""
    config = ConfigDict()
    config.name = "base"  # the experiment, first part of the name of its folder
    # One training run each: initialisation, order of the data, dropout. (): none, only speed and memory are
    # measured.
    config.seeds = (0,)

    # Which attention, or what stands in its place (gru, ssm), and its fields where they are not the defaults.
    config.attention = ConfigDict({"name": "full"})

    # Further ones, for models that mix them by layer, each under a label that `model.layers` has:
    # {"local": {"name": "window", "window_size": 64}}. Without a name the label is the name.
    config.mixers = ConfigDict()

    # Which task, and its fields where they are not the task's defaults.
    config.task = ConfigDict({"name": "bytes"})

    model = config.model = ConfigDict()
    model.num_layers = 2
    # Labels of the layers' mixers, in turn and around: "attention,local" has config.attention in layers 0, 2,
    # ... and config.mixers.local in layers 1, 3, ...
    model.layers = "attention"
    model.num_heads = 2
    model.num_kv_heads = optional(None)  # heads of keys and values, a divisor of num_heads; None: num_heads
    model.model_dim = 128
    model.head_dim = 64  # of a query and of a key; times num_heads it is a recurrent layer's inner width
    model.value_dim = optional(None)  # width of a value; None: head_dim
    model.mlp_dim = 512  # inner width of the feed-forward layer; 0: there is none
    model.norm = "pre"  # pre, post
    model.positions = "rotary"  # learned, sinusoidal, rotary (turns queries and keys, if any), none
    # Tokens of a causal depthwise convolution before the attention; 0: there is none. On `bytes` it learns
    # within a minute what follows what, for which attention alone takes several.
    model.conv_width = 4
    model.dropout_rate = 0.0  # of embeddings and residual branches; that of the weights is attention's
    model.init = "xavier"  # of the matrices: xavier, he, normal
    model.init_std = 0.02  # of the embeddings, and of the matrices if init is normal
    model.max_length = optional(None)  # longest input where something depends on it; None: the task's longest
    model.compute_dtype = "float32"  # float32, bfloat16; parameters are float32
    # Recompute a layer's activations in the backward pass instead of keeping them. On a CPU XLA holds both.
    model.remat = False

    optimizer = config.optimizer = ConfigDict()  # AdamW
    optimizer.learning_rate = 6e-3  # the highest; not used where there is a grid
    # Rates to try with seed 0; all seeds then train with the one that validates best. (): none.
    optimizer.learning_rate_grid = ()
    optimizer.schedule = "cosine"  # cosine (to 0 at the last step), rsqrt, constant
    optimizer.warmup_steps = 20  # linear, before the schedule; fewer than train.steps
    optimizer.weight_decay = 0.1  # of matrices, times the learning rate
    optimizer.l2 = 0.0  # added to the gradient as l2 times the matrices, before clipping and Adam
    optimizer.beta1 = 0.9
    optimizer.beta2 = 0.99
    optimizer.eps = 1e-8
    optimizer.clip_norm = optional(1.0)  # of the whole gradient; None: no clipping
    optimizer.ema_decay = optional(None)  # validate and test an average of the parameters, with this decay

    train = config.train = ConfigDict()
    train.batch_size = 2  # over all devices
    train.num_microbatches = 1  # parts of a batch whose gradients are added up one after the other
    train.steps = 200
    # What all steps together may take, in operations of matrix products as they are counted: it then decides
    # `steps`, whatever stands there, so that runs of equal `flops` compare. Not counted are validations,
    # trials of a grid and what `remat` computes again; warm-up and validations stay at their steps. None:
    # `steps` is what it says.
    train.flops = optional(None)
    train.eval_every = 50  # steps between validations; the best one's parameters are tested
    train.checkpoint_every = 50  # steps
    train.log_every = 10  # steps
    train.stop_when_solved = False  # stop at a validation that reaches the task's `solved`
    train.patience = optional(
        None
    )  # stop after so many validations in a row without a better one; None: never
    train.label_smoothing = 0.0  # share of the target that is spread over all classes
    train.entropy_penalty = 0.0  # times the mean entropy of the attention weights, added to the loss
    # Seeds that train as one program; None: as many as there is room for, on a CPU one.
    train.seeds_at_once = optional(None)
    train.deterministic = True  # the same bits each time, on a GPU too; speed is measured without it

    mesh = config.mesh = ConfigDict()  # devices: data x sequence of them, each with all parameters
    mesh.data = 1  # shares of each batch
    mesh.sequence = 1  # shares of each sequence; for attention that can (README, capabilities)

    evaluation = config.eval = ConfigDict()
    evaluation.batch_size = 8  # over all devices
    evaluation.timed_steps = (
        10  # training steps to measure speed and memory with, before training; 0: neither
    )

    # Before training and at each validation look at what each head attends to and at the gradient's norm by
    # part, and leave heat maps at the end. Costs a gradient and `attention_matrix` of 1,024 tokens each time.
    evaluation.diagnose = False

    # Tokens that the first trained seed writes at the end, on a task of text: shown, and kept in the record.
    evaluation.sample_tokens = 128

    return config.lock()


def optional(value):
    """A field that may be None, whatever is written to it."""
    field = config_dict.placeholder(object)
    field.set(value)
    return field
