// Errors in configs: with key, value and line, and the nearest valid spelling.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "mantissa/core/base/error.h"
#include "mantissa/setup/config/run_config.h"
#include "mantissa/setup/config/unknown.h"
#include "setup/config/config_text.h"

namespace mantissa::config {
namespace {

TEST(ConfigErrors, MissingRequiredKeysAreNamed) {
  EXPECT_EQ(message_of([] { parse(""); }),
            "dir/run.toml: run.steps is missing; set the number of optimizer steps under [run], such as "
            "steps = 300, or epochs = 3");
  std::string both = kSmallest;
  both.replace(both.find("steps = 300"), 11, "steps = 300\nepochs = 3");
  EXPECT_EQ(message_of([&] { parse(both); }),
            "dir/run.toml:3: run.epochs = 3: run.toml:2: run.steps is set too; remove one of them");
  EXPECT_EQ(
      message_of([] {
        parse(
            "[run]\nepochs = 2\n[[run.stage]]\nsteps = 4\n[model]\nhidden_size = 64\n[data]\nsource = \"a\"\n");
      }),
      "dir/run.toml:2: run.epochs = 2: each [[run.stage]] has its own steps; remove the key, or the stages");
  EXPECT_EQ(message_of([] { parse("[run]\nsteps = 1"); }),
            "dir/run.toml: model is missing; set path, config, or fields of config.json (hidden_size = 256, "
            "…) under [model]");
  EXPECT_EQ(message_of([] { parse("[run]\nsteps = 1\n[model]\npath = \"m\""); }),
            "dir/run.toml: data.source is missing; set source = \"kk\", or files, under [data]");
}

TEST(ConfigErrors, SyntaxHasALine) {
  EXPECT_EQ(refused("[batch\n").find("dir/run.toml:7: not valid TOML at column "), 0U) << refused("[batch\n");
  EXPECT_EQ(refused("[run]\nseed = 2\n").find("dir/run.toml:7: not valid TOML"), 0U);  // a table twice
  EXPECT_EQ(refused("\xff\xfe").find("dir/run.toml:7: not valid TOML"), 0U);
  for (const char* letter : {"\xc3\xa4 = 1", "\xcb\xb6 \"", "a = 1 \xc3\xa4", "[\xc3\xa4]"})
    EXPECT_EQ(refused(letter).find("dir/run.toml:7: not valid TOML"), 0U) << letter;
  EXPECT_EQ(refused("deep = " + std::string(5000, '[')).find("dir/run.toml:7: not valid TOML"), 0U);
}

TEST(ConfigErrors, AFieldOfAnotherFamilyHasItsNameInThisOne) {
  EXPECT_NE(refused_set("model.model_type=gpt2").find("is not a field of a gpt2 model; write n_embd"),
            std::string::npos)
      << refused_set("model.model_type=gpt2");
}

TEST(ConfigErrors, DeeplyNestedModelValuesAreErrors) {
  const std::string deep = "{a = " + std::string(40, '[') + std::string(40, ']') + "}";
  const std::string model = "[run]\nsteps = 1\n[data]\nsource = 'kk'\n[model]\nrope_scaling = ";
  EXPECT_EQ(message_of([&] { parse(model + deep); }),
            "dir/run.toml:6: model.rope_scaling = a table: nests deeper than 32 levels; flatten it");
}

TEST(ConfigErrors, PuzzlesHaveAtLeastAsManyPeopleAtMostAsAtLeast) {
  EXPECT_EQ(refused("people_min = 5\npeople_max = 3"),
            "dir/run.toml:7: data.people_min = 5: must be at most data.people_max, which is 3");
}

TEST(ConfigErrors, KeysOfVeryManyPartsAreRefusedAndManyDotsElsewhereAreNot) {
  const std::string said = "dir/run.toml:8: a key has more than 32 parts";
  std::string parts = "a", quoted = "'a.b'";
  for (int i = 0; i < 100000; ++i) {
    parts += ".a";
    quoted += " . \"\\\"\"";
  }
  EXPECT_EQ(refused("[log]\n" + parts + " = 1").find(said), 0U);
  EXPECT_EQ(refused("# \"\n[model." + parts + "]\nx = 1").find(said), 0U);
  EXPECT_EQ(refused("[log]\n" + quoted + " = 1").find(said), 0U);
  EXPECT_EQ(refused("[model]\nrope_scaling = {x = 'a\\', " + parts + " = 1}").find(said), 0U);
  EXPECT_EQ(refused("[model.rope_scaling]\nx = {y = \"\"\"\n\"\"\", " + parts + " = 1}")
                .find("dir/run.toml:9: a key has more than 32 parts"),
            0U);
  const std::string dots(100, '.');
  const RunConfig config = parse(std::string(kSmallest) + "# " + dots + "\n[log] # don't " + dots +
                                 "\ninterval = 3\n[precision]\npolicy = '32-true' #");
  EXPECT_EQ(config.log.interval, 3);
  EXPECT_EQ(parse(kSmallest, {"run.name='" + dots + "'"}).run.name, dots);
  EXPECT_EQ(refused_set("model.rope_scaling={" + parts + "=1}").find("--set:1: a key has more"), 0U);
}

TEST(ConfigErrors, UnknownKeysGetASuggestion) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[optimizer]\nweight_dcay = 0.1",
       "dir/run.toml:8: unknown key \"optimizer.weight_dcay\"; did you mean \"weight_decay\"?"},
      {"[log]\nlr = 0.1", "dir/run.toml:8: unknown key \"log.lr\"; write optimizer.lr"},
      {"[log]\nname = 1",
       "dir/run.toml:8: unknown key \"log.name\"; write run.name or optimizer.name or schedule.name"},
      {"[log]\nwarmup_step = 1",
       "dir/run.toml:8: unknown key \"log.warmup_step\"; did you mean \"schedule.warmup_steps\"?"},
      {"[log]\nqqqqqqqqqq = 1",
       "dir/run.toml:8: unknown key \"log.qqqqqqqqqq\" (keys of [log]: interval, tensorboard, "
       "health_interval, observe, observe_interval)"},
      {"[shedule]\nname = \"cosine\"",
       "dir/run.toml:7: unknown section \"shedule\"; did you mean \"schedule\"? (sections: run, model, data, "
       "train, adapter, dpo, kto, rl, batch, optimizer, schedule, precision, precision.loss_scale, checkpoint, "
       "log, distributed)"},
      {"[precision]\ncompte = \"bf16\"",
       "dir/run.toml:8: unknown key \"precision.compte\"; did you mean \"compute\"?"},
      {"[precision.loss_scale]\nhysteresi = 2",
       "dir/run.toml:8: unknown key \"precision.loss_scale.hysteresi\"; did you mean \"hysteresis\"?"},
  };
  for (const auto& [lines, message] : cases) EXPECT_EQ(refused(lines), message);
  EXPECT_EQ(message_of([] { parse("steps = 300\n"); }),
            "dir/run.toml:1: \"steps\" is not in a section; write run.steps");
  EXPECT_EQ(message_of([] { parse("precision = \"bf16\"\n"); }),
            "dir/run.toml:1: \"precision\" is not in a section; write precision.policy (for instance policy "
            "= \"bf16-mixed\")");
  EXPECT_EQ(message_of([] { parse("run = 3\n"); }),
            "dir/run.toml:1: \"run\" is a section; write its keys under [run]");
  EXPECT_EQ(message_of([] { parse("[[run]]\nsteps = 3\n"); }),
            "dir/run.toml:1: \"run\" is a section; write its keys under [run]");
  EXPECT_EQ(message_of([] { parse("[model]\nhiden_size = 3\n"); }),
            "dir/run.toml:2: unknown key \"model.hiden_size\"; did you mean \"hidden_size\"?");
}

TEST(ConfigErrors, SpellingsOfOtherTrainersAreKnown) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"gradient_clipping", "optimizer.max_grad_norm (gradients are clipped to this norm)"},
      {"save_steps", "checkpoint.interval"},
      {"save_total_limit", "checkpoint.keep"},
      {"per_device_train_batch_size", "batch.micro_batch_size"},
      {"per-device-train-batch-size", "batch.micro_batch_size"},
      {"gradient_accumulation_steps",
       "batch.micro_batch_size (accumulation steps = global_batch_size / micro_batch_size)"},
      {"gradient_checkpointing", "batch.recompute (recompute = \"block\", or \"attention\")"},
      {"max_tokens", "run.steps (steps = tokens / (global_batch_size × sequence_length))"},
      {"num_train_epochs", "run.epochs"},
      {"learning_rate", "optimizer.lr"},
      {"lr_warmup_fraction", "schedule.warmup_ratio"},
      {"lr_scheduler_type", "schedule.name"},
      {"logging_steps", "log.interval"},
      {"output_dir", "run.out"},
      {"model_name_or_path", "model.path"},
      {"block_size", "data.sequence_length"},
      {"n_layer", "model.num_hidden_layers"},
      {"bf16", "precision.policy (for instance policy = \"bf16-mixed\")"},
  };
  for (const auto& [foreign, canonical] : cases) {
    EXPECT_EQ(refused("[log]\n" + foreign + " = 1"),
              "dir/run.toml:8: unknown key \"log." + foreign + "\"; write " + canonical);
  }
}

TEST(ConfigErrors, EveryForeignSpellingNamesAKeyThatExists) {
  ASSERT_GT(foreign_spellings().size(), 100U);
  for (const std::string_view foreign : foreign_spellings()) {
    const std::string message = refused("[log]\n" + std::string(foreign) + " = 1");
    ASSERT_NE(message.find("; write "), std::string::npos) << message;
    const std::size_t begin = message.find("; write ") + 8;
    const std::string key = message.substr(begin, message.find_first_of(" ", begin) - begin);
    bool known = false;
    for (const OptionInfo& o : options()) known = known || o.section + "." + o.key == key;
    EXPECT_TRUE(known) << message;
  }
}

TEST(ConfigErrors, WrongTypesAndRangesNameKeyAndValue) {
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"[log]\ninterval = \"many\"", "dir/run.toml:8: log.interval = \"many\": must be a whole number"},
      {"[log]\ninterval = 10.0", "dir/run.toml:8: log.interval = 10.0: must be a whole number; write 10"},
      {"[log]\ninterval = 1e3", "dir/run.toml:8: log.interval = 1000.0: must be a whole number; write 1000"},
      {"[log]\ninterval = 1.5", "dir/run.toml:8: log.interval = 1.5: must be a whole number"},
      {"[log]\ninterval = 0", "dir/run.toml:8: log.interval = 0: must be at least 1"},
      {"[log]\ninterval = true", "dir/run.toml:8: log.interval = true: must be a whole number"},
      {"[log]\ninterval = [1]", "dir/run.toml:8: log.interval = an array: must be a whole number"},
      {"[log]\ninterval = {a = 1}", "dir/run.toml:8: log.interval = a table: must be a whole number"},
      {"[log]\ninterval = 2020-01-01",
       "dir/run.toml:8: log.interval = a date or time: must be a whole number"},
      {"[log]\ntensorboard = \"yes\"", "dir/run.toml:8: log.tensorboard = \"yes\": must be true or false"},
      {"[log]\ntensorboard = 1", "dir/run.toml:8: log.tensorboard = 1: must be true or false"},
      {"[optimizer]\nlr = -0.1", "dir/run.toml:8: optimizer.lr = -0.1: must be greater than 0"},
      {"[optimizer]\nlr = 0", "dir/run.toml:8: optimizer.lr = 0: must be greater than 0"},
      {"[optimizer]\nlr = nan", "dir/run.toml:8: optimizer.lr = nan: must be a finite number"},
      {"[optimizer]\nlr = inf", "dir/run.toml:8: optimizer.lr = inf: must be a finite number"},
      {"[optimizer]\nlr = \"1e-3\"", "dir/run.toml:8: optimizer.lr = \"1e-3\": must be a number"},
      {"[optimizer]\neps = 0", "dir/run.toml:8: optimizer.eps = 0: must be greater than 0"},
      {"[optimizer]\nweight_decay = -1", "dir/run.toml:8: optimizer.weight_decay = -1: must be at least 0"},
      {"[optimizer]\nbetas = 0.9",
       "dir/run.toml:8: optimizer.betas = 0.9: must be two numbers, such as [0.9, 0.95]"},
      {"[optimizer]\nbetas = [0.9]",
       "dir/run.toml:8: optimizer.betas = an array: must be two numbers, such as [0.9, 0.95]"},
      {"[optimizer]\nbetas = [0.9, 1]",
       "dir/run.toml:8: optimizer.betas = an array: betas[1] is 1, but must be at least 0 and below 1"},
      {"[optimizer]\nbetas = [\"a\", 0.9]",
       "dir/run.toml:8: optimizer.betas = an array: betas[0] is \"a\", but must be a number"},
      {"[optimizer]\nname = \"adamv\"",
       "dir/run.toml:8: optimizer.name = \"adamv\": unknown choice; did you mean \"adamw\"? (choices: "
       "adamw, adam, sgd, lion, adafactor, muon, schedule-free-adamw, ademamix, adan)"},
      {"[optimizer]\nname = 3", "dir/run.toml:8: optimizer.name = 3: must be a string; write \"3\""},
      {"[schedule]\nname = \"cosin\"",
       "dir/run.toml:8: schedule.name = \"cosin\": unknown choice; did you mean \"cosine\"? (choices: "
       "cosine, constant, linear, wsd, inverse-sqrt, rwkv)"},
      {"[schedule]\nwarmup_ratio = 0.1\nwarmup_steps = 5",
       "dir/run.toml:8: schedule.warmup_ratio = 0.1: schedule.warmup_steps is set too; remove one of them"},
      {"[schedule]\nwarmup_ratio = 2",
       "dir/run.toml:8: schedule.warmup_ratio = 2: must be at least 0 and at most 1"},
      {"[schedule]\ndecay_steps = 5",
       "dir/run.toml:8: schedule.decay_steps = 5: only schedule.name = \"wsd\" reads it; set the name, or remove the key"},
      {"[schedule]\nname = \"wsd\"\ntimescale = 5",
       "dir/run.toml:9: schedule.timescale = 5: only schedule.name = \"inverse-sqrt\" reads it; set the name, or remove the key"},
      {"[schedule]\nname = \"wsd\"\ndecay = \"sqrt\"",
       "dir/run.toml:9: schedule.decay = \"sqrt\": unknown choice; did you mean \"1-sqrt\"? (choices: cosine, linear, 1-sqrt)"},
      {"[schedule]\nmin_lr_ratio = 1.1",
       "dir/run.toml:8: schedule.min_lr_ratio = 1.1: must be at least 0 and at most 1"},
      {"[train]\nobjective = \"dpoo\"",
       "dir/run.toml:8: train.objective = \"dpoo\": unknown choice; did you mean \"dpo\"? (choices: "
       "pretrain, sft, reward, dpo, kto, rl)"},
      {"[train]\nobjective = \"dpo\"\n[dpo]\nloss = \"simpo\"\nreference = \"m\"",
       "dir/run.toml:11: dpo.reference = \"m\": dpo.loss = \"simpo\" does not read it, only sigmoid and ipo; "
       "remove it"},
      {"[train]\nobjective = \"dpo\"\n[dpo]\ngamma = 0.5",
       "dir/run.toml:10: dpo.gamma = 0.5: dpo.loss = \"sigmoid\" does not read it, only simpo; remove it"},
      {"[train]\nobjective = \"dpo\"\n[dpo]\nloss = \"ipo\"\nlabel_smoothing = 0.1",
       "dir/run.toml:11: dpo.label_smoothing = 0.1: dpo.loss = \"ipo\" does not read it, only sigmoid and "
       "simpo; remove it"},
      {"[train]\nobjective = \"dpo\"\n[dpo]\nloss = \"orpo\"\nnll_coef = 1",
       "dir/run.toml:11: dpo.nll_coef = 1: the loss of orpo contains the log-likelihood already; remove it"},
      {"[dpo]\nbeta = -1", "dir/run.toml:8: dpo.beta = -1: must be greater than 0"},
      {"[train]\nobjective = \"rl\"\n[rl]\nreward = \"regex:a(b\"",
       "dir/run.toml:10: rl.reward = \"regex:a(b\": the pattern is invalid at byte 4: missing closing "
       "parenthesis; it is \"a(b\""},
      {"[train]\nobjective = \"rl\"\n[rl]\nreward = \"exakt\"",
       "dir/run.toml:10: rl.reward = \"exakt\": expected kk, exact, \"regex:PATTERN\", model or "
       "\"program:COMMAND\"; did you mean \"exact\"?"},
      {"[train]\nobjective = \"rl\"\n[rl]\nreward = \"program:\"",
       "dir/run.toml:10: rl.reward = \"program:\": the command is empty; write \"program:COMMAND\", such as "
       "\"program:python3 score.py\""},
      {"[checkpoint]\nkeep = 0", "dir/run.toml:8: checkpoint.keep = 0: must be at least 1"},
      {"[batch]\nglobal_batch_size = -8",
       "dir/run.toml:8: batch.global_batch_size = -8: must be at least 1 and at most 16777216"},
  };
  for (const auto& [lines, message] : cases) EXPECT_EQ(refused(lines), message);
}

TEST(ConfigErrors, DataIsChecked) {
  const auto with = [](const std::string& data) {
    return message_of([&] { parse("[run]\nsteps = 1\n[model]\nhidden_size = 4\n[data]\n" + data); });
  };
  EXPECT_EQ(with("source = []"), "dir/run.toml:6: data.source = an array: must not be empty");
  EXPECT_EQ(with("source = \"\""), "dir/run.toml:6: data.source = \"\": must not be empty");
  EXPECT_EQ(with("source = [\"a\", 3]"),
            "dir/run.toml:6: data.source = an array: must be a string, or an array of strings");
  EXPECT_EQ(with("source = [\"kk\", \"a\"]"),
            "dir/run.toml:6: data.source = an array: \"kk\" among files requires data.weights, one share for "
            "each of the 2 entries");
  EXPECT_EQ(
      with("source = [\"a\", \"b\", \"c\"]\nweights = [1, 1e308, 1e308]"),
      "dir/run.toml:7: data.weights = an array: must have a finite sum, because a share is a weight divided "
      "by the sum. Fix: give smaller weights with the same ratios, such as [1, 2]");
  EXPECT_EQ(with("source = 3"), "dir/run.toml:6: data.source = 3: must be a string; write \"3\"");
  EXPECT_EQ(with("source = \"a\"\nvalidation = 1"),
            "dir/run.toml:7: data.validation = 1: must be at least 0 and below 1");
  EXPECT_EQ(with("source = \"a\"\nvalidation = true"),
            "dir/run.toml:7: data.validation = true: must be a share such as 0.02, or files");
  EXPECT_EQ(with("source = \"a\"\nformat = \"binidxx\""),
            "dir/run.toml:7: data.format = \"binidxx\": unknown choice; did you mean \"binidx\"? (choices: "
            "auto, text, jsonl, json, csv, tokens, binidx)");
  EXPECT_EQ(with("source = \"a\"\ntokenizer = \"model\""),
            "dir/run.toml:7: data.tokenizer = \"model\": there is no model.path with a tokenizer; write "
            "\"byte\", or a tokenizer file");
  EXPECT_EQ(with("source = \"a\"\nsequence_length = 0"),
            "dir/run.toml:7: data.sequence_length = 0: must be at least 1 and at most 16777216");
}

TEST(ConfigErrors, TheModelIsDefinedOnce) {
  const auto with = [](const std::string& model) {
    return message_of([&] { parse("[run]\nsteps = 1\n[data]\nsource = \"kk\"\n[model]\n" + model); });
  };
  EXPECT_EQ(with("path = \"a\"\nconfig = \"b\""),
            "dir/run.toml:7: model.path and model.config both define the model; keep one");
  EXPECT_EQ(with("path = \"a\"\nhead_dim = 4"),
            "dir/run.toml:7: model.path and model.head_dim both define the model; keep one");
  EXPECT_EQ(with("config = \"a\"\nhead_dim = 4"),
            "dir/run.toml:7: model.config and model.head_dim both define the model; keep one");
  EXPECT_EQ(with("hidden_size = -4"),
            "dir/run.toml:6: model.hidden_size = -4: must be at least 1 and at most 2147483647");
  EXPECT_EQ(with("rms_norm_eps = \"small\""),
            "dir/run.toml:6: model.rms_norm_eps = \"small\": must be a number");
  EXPECT_EQ(with("rope_scaling = {factor = nan}"),
            "dir/run.toml:6: model.rope_scaling = a table: must be a finite number");
  EXPECT_EQ(with("tie_word_embeddings = \"no\""),
            "dir/run.toml:6: model.tie_word_embeddings = \"no\": must be true or false");
}

TEST(ConfigErrors, BatchesMustDivide) {
  const auto with = [](const std::string& batch) { return refused("[batch]\n" + batch); };
  EXPECT_EQ(
      with("global_batch_size = 32\nmicro_batch_size = 7"),
      "dir/run.toml:9: batch.micro_batch_size = 7: must divide batch.global_batch_size, which is 32; try 4");
  EXPECT_EQ(with("micro_batch_size = 64"),
            "dir/run.toml:8: batch.micro_batch_size = 64: must divide batch.global_batch_size, which is 32; "
            "try 32");
  EXPECT_EQ(with("shards = 3"),
            "dir/run.toml:8: batch.shards = 3: must divide batch.global_batch_size, which is 32; try 2");
  EXPECT_EQ(with("shards = 4\nmicro_batch_size = 16"),
            "dir/run.toml:9: batch.micro_batch_size = 16: must divide the sequences of a shard "
            "(global_batch_size / shards), which is 8; try 8");
  EXPECT_EQ(with("leaf = 3"),
            "dir/run.toml:8: batch.leaf = 3: must divide batch.global_batch_size, which is 32; try 2");
  EXPECT_EQ(with("leaf = 4\nmicro_batch_size = 2"),
            "dir/run.toml:8: batch.leaf = 4: must divide batch.micro_batch_size, which is 2; try 2");
}

TEST(ConfigErrors, PrecisionErrorsNameTheLine) {
  const auto with = [](const std::string& precision) { return refused("[precision]\n" + precision); };
  EXPECT_EQ(with("policy = \"bf16-mixd\""),
            "dir/run.toml:8: policy \"bf16-mixd\": no preset is called \"bf16-mixd\"; did you mean "
            "\"bf16-mixed\"? (presets: 64-true, 32-true, tf32, bf16-matmul, bf16-matmul-x3, bf16-matmul-x6, "
            "bf16-mixed, 16-mixed, bf16-true, 16-true, fp8-hybrid)");
  EXPECT_EQ(with("policy = [1]"),
            "dir/run.toml:8: precision.policy = an array: must be a string, such as "
            "\"bf16-mixed\"");
  EXPECT_EQ(with("policy = \"32-true\"\noptimizer = \"e4m3\"")
                .find("dir/run.toml:9: optimizer=e4m3 is not available: "),
            0U);
  EXPECT_EQ(with("kahan = 1"), "dir/run.toml:8: kahan=\"1\": must be true or false");
  EXPECT_EQ(with("rules = [\n\"lm_head: compute=f32\",\n\"lm_head\"]"),
            "dir/run.toml:10: rule \"lm_head\": a rule is SCOPE: field=value, such as \"lm_head: "
            "compute=f32\"; write *: for every scope");
  EXPECT_EQ(with("rules = [{match = \"*\", compte = \"f32\"}]")
                .find("dir/run.toml:8: a rule has no key \"compte\"; did you mean "),
            0U);
  EXPECT_EQ(with("rules = [3]"),
            "dir/run.toml:8: precision.rules = an array: must be an array of rules, such as [\"lm_head: "
            "compute=f32\"]");
  EXPECT_EQ(
      with("policy = \"64-true\"\nrules = [\"lm_head: compute=f32\"]")
          .find("dir/run.toml:8: rule \"lm_head: compute=f32\" (run.toml:9): compute=f32 is not available: "),
      0U);
}

TEST(ConfigErrors, LossScalesMustAgree) {
  const auto refused_with = [](const std::string& lines) {
    return refused("[precision]\npolicy = \"16-mixed\"\n[precision.loss_scale]\n" + lines);
  };
  EXPECT_EQ(refused_with("min_loss_scale = 8\ninitial_scale_power = 2"),
            "dir/run.toml:10: precision.loss_scale.min_loss_scale = 8 is above the initial scale, 2^2; lower "
            "it, or raise initial_scale_power");
  EXPECT_EQ(refused_with("rule = \"torch\"\nhysteresis = 2"),
            "dir/run.toml:11: precision.loss_scale.hysteresis = 2: PyTorch's rule does not use this key; "
            "remove it, or write rule = \"deepspeed\"");
  EXPECT_EQ(refused("[precision]\npolicy = \"16-mixed loss_scale=dynamic:3\""),
            "dir/run.toml:8: loss_scale=dynamic:3: the initial dynamic scale must be a power of two, such as "
            "dynamic:2^16");
}

TEST(ConfigErrors, LossScaleKeysNeedALossScale) {
  EXPECT_EQ(refused("[precision]\npolicy = \"bf16\"\n[precision.loss_scale]\nhysteresis = 2"),
            "dir/run.toml:10: precision.loss_scale.hysteresis = 2: the policy (bf16-mixed) has no loss "
            "scale, so this key has no effect; remove it, or add loss_scale=dynamic to the policy");
  EXPECT_EQ(refused("[precision.loss_scale]\nhysteresis = 0"),
            "dir/run.toml:8: precision.loss_scale.hysteresis = 0: must be at least 1");
}

TEST(ConfigErrors, OverridesAreNamed) {
  EXPECT_EQ(refused_set("run.steps"),
            "--set \"run.steps\": must be section.key=value, such as run.steps=100");
  EXPECT_EQ(refused_set("=3"), "--set \"=3\": must be section.key=value, such as run.steps=100");
  EXPECT_EQ(refused_set("steps=3"), "--set \"steps=3\": \"steps\" is not in a section; write run.steps");
  EXPECT_EQ(refused_set("run.stps=3"),
            "--set \"run.stps=3\": unknown key \"run.stps\"; did you mean \"steps\"?");
  EXPECT_EQ(refused_set("rnu.steps=3").find("--set \"rnu.steps=3\": unknown section \"rnu\""), 0U);
  EXPECT_EQ(refused_set("run.steps=many"), "--set: run.steps = \"many\": must be a whole number");
  EXPECT_EQ(refused_set("run.steps=-1"), "--set: run.steps = -1: must be at least 1");
  EXPECT_EQ(refused_set("batch.micro_batch_size=5"),
            "--set: batch.micro_batch_size = 5: must divide batch.global_batch_size, which is 32; try 4");
  EXPECT_EQ(refused_set("run.name=\xff"), "--set \"run.name=\\xff\": the value is not UTF-8");
}

TEST(ConfigErrors, DamagedTextIsReadOrIsAConfigError) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const std::string pieces = "[]{}=\"'\\\n\t .,:;#-_0129aezE*?!^|<>\xff\x80\x01";
  int refusals = 0;
  for (int trial = 0; trial < 2000; ++trial) {
    std::string text = kFull;
    for (unsigned edits = 1 + random() % 4; edits > 0; --edits) {
      const std::size_t at = random() % text.size();
      switch (random() % 3) {
        case 0:
          text[at] = pieces[random() % pieces.size()];
          break;
        case 1:
          text.erase(at, 1 + random() % 8);
          break;
        default:
          text.insert(at, 1, pieces[random() % pieces.size()]);
      }
    }
    try {
      const RunConfig c = parse(text);
      EXPECT_EQ(parse_config(c.to_toml(), "x.toml"), c) << text;
    } catch (const Error& e) {
      ++refusals;
      EXPECT_EQ(std::string(e.what()).find("dir/run.toml"), 0U) << e.what();
    }
  }
  EXPECT_GT(refusals, 0);
}

}  // namespace
}  // namespace mantissa::config
