"""Names that other libraries have for our arguments and keys, and for what we do not have."""

SYNONYMS = {
    "swish": "silu",
    "logistic": "sigmoid",
    "linear": "identity",
    "rectifier": "relu",
    "l1": "mae",
    "l2": "mse weight_decay",
    "rmse": "mse",
    "rsquared": "r2",
    "r_squared": "r2",
    "r2_score": "r2",
    "accuracy_score": "accuracy",
    "f1": "macro_f1",
    "f1_score": "macro_f1",
    "auc": "roc_auc",
    "roc_auc_score": "roc_auc",
    "root_mean_squared_error": "rmse mse",
    "cross_entropy": "softmax_cross_entropy",
    "crossentropy": "softmax_cross_entropy",
    "categorical_crossentropy": "softmax_cross_entropy",
    "sparse_categorical_crossentropy": "softmax_cross_entropy",
    "binary_crossentropy": "bce_with_logits",
    "logloss": "log_loss softmax_cross_entropy",
    "log_loss": "softmax_cross_entropy",
    "bce": "bce_with_logits",
    "focal": "binary_focal",
    "pinball": "quantile",
    "logcosh": "log_cosh",
    "nll": "gaussian_nll",
    "gaussian": "gaussian_nll",
    "xavier": "glorot_uniform",
    "kaiming": "he_normal",
    "he": "he_normal",
    "momentum": "sgd",
    "model": "mlp",
    "net": "mlp",
    "network": "mlp",
    "learning_rate": "lr",
    "learning_rate_init": "lr",
    "initial_lr": "lr",
    "eta": "lr",
    "epsilon": "eps",
    "beta_1": "betas",
    "beta_2": "betas",
    "beta1": "betas",
    "beta2": "betas",
    "rho": "alpha",
    "hidden_layer_sizes": "hidden",
    "hidden_sizes": "hidden sizes",
    "hidden_dim": "hidden",
    "layers": "hidden sizes",
    "layer_sizes": "hidden sizes",
    "units": "hidden sizes",
    "in_features": "sizes",
    "input_dim": "sizes",
    "input_shape": "sizes",
    "input_size": "sizes",
    "max_iter": "epochs",
    "n_epochs": "epochs",
    "num_epochs": "epochs",
    "n_iter": "epochs",
    "random_state": "seed",
    "seed": "random_state",
    "random_seed": "seed random_state",
    "manual_seed": "seed random_state",
    "solver": "optimizer",
    "optim": "optimizer",
    "criterion": "loss",
    "loss_fn": "loss",
    "members": "kinds",
    "lr_scheduler": "schedule",
    "scheduler": "schedule",
    "alpha": "weight_decay final levels",
    "tol": "min_delta",
    "n_iter_no_change": "patience",
    "n_jobs": "threads",
    "num_threads": "threads",
    "max_norm": "clip_norm",
    "max_grad_norm": "clip_norm",
    "gradient_clip_val": "clip_norm",
    "grad_clip": "clip_norm",
    "clip_grad_norm": "clip_norm",
    "clipnorm": "clip_norm",
    "global_clipnorm": "clip_norm",
    "clip": "clip_norm",
    "bs": "batch_size",
    "dim": "axis",
    "keepdim": "keepdims",
    "val_loss": "loss",
    "val_acc": "accuracy",
    "val_accuracy": "accuracy",
    "val": "validation",
    "test_size": "test",
    "test_split": "test",
    "test_fraction": "test",
    "acc": "accuracy",
    "auroc": "roc_auc",
    "squared_error": "mse",
    "absolute_error": "mae",
    "adaptive": "plateau",
    "sequential": "mlp",
    "mseloss": "meansquarederror",
    "l1loss": "meanabsoluteerror",
    "smoothl1loss": "huber",
    "huberloss": "huber",
    "crossentropyloss": "softmaxcrossentropy",
    "nllloss": "softmaxcrossentropy",
    "bceloss": "binarycrossentropywithlogits",
    "bcewithlogitsloss": "binarycrossentropywithlogits",
    "cosineannealinglr": "cosineschedule",
    "cosinedecay": "cosineschedule",
    "steplr": "stepschedule",
    "exponentiallr": "exponentialschedule",
    "onecyclelr": "onecycleschedule",
    "reducelronplateau": "plateauschedule",
    "load_model": "load",
    "read_csv": "read_table",
    "train": "fit",
    "valid": "validation",
    "validation_data": "validation",
    "validation_split": "validation_fraction validation",
    "mean_squared_error": "mse",
    "mean_absolute_error": "mae",
    "t_max": "total_steps",
    "t_0": "total_steps",
    "decay_steps": "total_steps",
    "total_iters": "total_steps",
    "num_training_steps": "total_steps",
    "max_steps": "total_steps",
    "num_steps": "total_steps",
    "num_warmup_steps": "warmup_epochs",
    "pct_start": "rise",
    "end_factor": "final",
    "final_lr_factor": "final",
    "step_size": "every_epochs",
    "gamma": "factor",
    "decay_rate": "factor",
    "weight": "class_weights class_weight weighted",
    "pos_weight": "positive_weight",
    "beta": "betas delta",
    "q": "levels",
    "quantile": "levels",
    "quantiles": "levels",
    "kernel_initializer": "initializer",
    "weight_init": "initializer",
    "init_method": "initializer",
    "n": "count",
    "n_members": "count",
    "n_estimators": "count",
    "init": "initializer",
    "act": "activation",
    "activation_fn": "activation",
    "act_fn": "activation",
    "nonlinearity": "activation",
    "final_activation": "output_activation",
    "out_activation": "output_activation",
    "p": "dropout",
    "scaler": "standardize",
    "scaling": "standardize",
    "normalize": "standardize",
    "scale": "standardize",
    "impute": "missing",
    "imputer": "missing",
    "fillna": "missing",
    "label": "target",
    "target_column": "target",
    "y": "target",
    "cat_features": "categorical",
    "categorical_features": "categorical",
    "categorical_feature": "categorical",
    "ignore": "drop",
    "drop_columns": "drop",
    "sep": "delimiter",
    "separator": "delimiter",
    "encoding": "text_encoding",
    "parse_dates": "date_format",
    "dayfirst": "date_format",
    "null_values": "na_values",
    "na_filter": "na_values",
    "cv": "folds",
    "n_splits": "folds",
    "n_folds": "folds",
}
"""What other libraries call some of our names; where one means several, they follow each other."""

_RATE = (
    "the rate is the optimizer's, Adam(mlp, lr=0.001), and a schedule has shares of it from 0 to 1"
)
_NONE = "there is none here; leave it out"

_SENTENCES = {
    "device gpu cuda use_gpu accelerator num_workers pin_memory": (
        "all runs on the processor; leave it out"
    ),
    "lr_decay decay learning_rate_decay power_t schedule scheduler lr_scheduler": (
        "a schedule lowers the learning rate: Adam(mlp, schedule=CosineSchedule(1000))"
    ),
    "lr learning_rate learning_rate_init max_lr base_lr initial_learning_rate": _RATE,
    "eta_min min_lr final_lr end_learning_rate": (
        f"{_RATE}: final=0.01 ends at a hundredth, and min_factor=0.01 is a plateau's least"
    ),
    "div_factor final_div_factor": (
        "initial is 1 / div_factor, final is 1 / (div_factor * final_div_factor)"
    ),
    "milestones": (
        "drops are at regular intervals, StepSchedule(every_epochs=30, factor=0.1), or a schedule "
        "is a function of the step: lambda step: 1.0 if step < 1000 else 0.1"
    ),
    "start_factor": "the factor starts at 1; warmup_epochs raises it from near 0 before that",
    "t_max t_0 total_steps decay_steps total_iters num_training_steps max_steps": (
        "the training itself says how many steps there are; leave it out"
    ),
    "last_epoch": "the optimizer counts the steps, optimizer.steps; leave it out",
    "anneal_strategy three_phase t_mult cycle_momentum amsgrad foreach capturable fused": _NONE,
    "differentiable maximize dampening centered momentum_decay max_fun": _NONE,
    "momentum nesterov nesterovs_momentum": (
        "the optimizer sgd has it, and the first of Adam's betas is alike: "
        "Sgd(mlp, lr=0.1, momentum=0.9)"
    ),
    "betas beta_1 beta_2 beta1 beta2 epsilon": (
        "Adam(mlp, betas=(0.9, 0.999), eps=1e-8) has these"
    ),
    "max_norm clipnorm clipvalue global_clipnorm clip_norm max_grad_norm": (
        "the step clips: TrainingStep(mlp, loss, optimizer, batch_size=32, clip_norm=1.0)"
    ),
    "params parameters": "an optimizer is made for a network, which comes first",
    "reduction size_average reduce": (
        "a loss is the mean over its rows, or a mean by sample weights; leave it out"
    ),
    "from_logits": "losses take outputs before softmax or sigmoid; leave it out",
    "bias use_bias": "all layers have biases; leave it out",
    "batch_norm batchnorm norm layer_norm normalization": (
        "an Mlp has no normalization; mlpengine.nn.Residual, in configs network: residual, has"
    ),
    "verbose disp": "progress is what callbacks show; leave it out",
    "shuffle": "the rows are shuffled in each epoch; leave it out",
    "restore_best_weights save_best_only": "the best weights are kept; leave it out",
    "mode": "a metric itself says whether more is better, and a loss is to fall; leave it out",
    "monitor": "EarlyStopping(patience=20, monitor='loss') has it",
    "patience": "early_stopping=EarlyStopping(patience=20) has it",
    "metrics": (
        "a task has its metrics: Loop(step, Classification(3), ...) has accuracy, and "
        "task.watch('macro_f1') adds one"
    ),
    "callbacks": "mlpengine.fit(table, target='y', callbacks=[...]) and Loop take them",
    "batch_size": (
        "the step has it, TrainingStep(mlp, loss, optimizer, batch_size=32); predictions take all "
        "rows at once"
    ),
    "delta": "a loss has it: Huber(delta=1.0)",
    "dtype converters": "text=['a'] reads columns as texts, and numbers=['b'] as numbers",
    "epochs n_epochs num_epochs max_iter": (
        "Loop(step, Classification(3), Split(x, y, truth=y), epochs=20) runs epochs"
    ),
    "header names": "the first row must hold the names of the columns; leave it out",
    "index_col usecols nrows skiprows columns": (
        "read the table with pandas.read_csv, and give that data frame to mlpengine.fit"
    ),
    "numeric numeric_features numerical": (
        "columns of numbers are recognized; leave it out, or name others in categorical=['a']"
    ),
}

ABSENT = {name: text for names, text in _SENTENCES.items() for name in names.split()}
"""What is said of arguments of other libraries that a function has under no name."""

_LAYERS = {
    "relu gelu silu elu selu leakyrelu prelu tanh sigmoid softplus mish": (
        "activations are names: write Mlp([4, 8, 3], activation='relu')"
    ),
    "linear dense layer module sequential": (
        "the sizes of a network make its layers: write Mlp([4, 8, 3])"
    ),
    "dropout": "a network has it: write Mlp([4, 8, 3], dropout=0.1)",
}

FOREIGN_LAYERS = {name: text for names, text in _LAYERS.items() for name in names.split()}
"""What is said of the names that layers and activations have in other libraries."""
