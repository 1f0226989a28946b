// The table of a config's keys: one row for each.
#include <algorithm>
#include <functional>
#include <iterator>

#include "mantissa/core/base/words.h"
#include "mantissa/setup/config/optimizer.h"
#include "mantissa/setup/config/option_rows.h"
#include "mantissa/setup/config/options.h"
#include "mantissa/setup/config/post_training.h"
#include "mantissa/text/reward/rules.h"
#include "mantissa/text/rows/file_kinds.h"

namespace mantissa::config {
namespace {

constexpr double kMostDropped = 0.99;  // of dropout

std::vector<std::string> optimizer_names() {
  return names_of(optim::all_optimizers(), &optim::Optimizer::name);
}

void add_model_and_data(std::vector<Option>& table) {
  add<RunSection>(
      table, "run", &RunConfig::run,
      {
          {"name", &RunSection::name, "name of the run; default: the name of the config file"},
          {"out", &RunSection::out, "run directory, relative to the current directory; default: runs/NAME"},
          {"seed", &RunSection::seed, "seed of the initial weights and of the data order", from(0)},
          {"steps", &RunSection::steps, "number of optimizer steps", from(1, kMany)},
          {"epochs", &RunSection::epochs,
           "times that every row is trained, in place of steps, which are rounded up", from(0, 10000)},
          {"threads", &RunSection::threads, "number of threads, 0: all cores; changes no bit", from(0, 1024)},
          {"on_nonfinite", &RunSection::on_nonfinite,
           "a step with an inf or NaN that no loss scale cures: stop the run, skip the step, or continue "
           "with it",
           words({"stop", "skip", "continue"})},
          {"earlier_steps", &RunSection::earlier_steps,
           "steps of an earlier run, whose weights model.path has: its data and its schedule go on after them",
           from(0, kMany)},
          {"skip_batches", &RunSection::skip_batches, "steps whose batch is skipped, such as \"7,9-12\""},
      });
  add<ModelSection>(
      table, "model", &RunConfig::model,
      {
          {"path", &ModelSection::path,
           "Hugging Face directory or GGUF file with the config and weights of the model", path()},
          {"config", &ModelSection::config, "config.json of the model; weights are initialized from the seed",
           path()},
      });
  add<DataSection>(
      table, "data", &RunConfig::data,
      {
          {"source", &DataSection::source,
           "\"kk\" (Knights-and-Knaves puzzles), or files and globs; \"kk\" among files requires "
           "data.weights",
           path({"kk"})},
          {"format", &DataSection::format, "kind of the files; auto: by the names of the files",
           words(text::format_names())},
          {"fields", &DataSection::fields,
           "names of the fields in the files, such as {prompt = \"query\", completion = \"reply\"}; a blank line "
           "joins several texts: {text = [\"title\", \"body\"]}"},
          {"id_type", &DataSection::id_type,
           "type of the ids in token files without a header: auto (uint16 if model.vocab_size is below "
           "65,536, else uint32), uint16 or uint32",
           words({"auto", "uint16", "uint32"})},
          {"tokenizer", &DataSection::tokenizer,
           "\"byte\", \"model\" (the tokenizer next to the weights), or a tokenizer file",
           path({"byte", "model"})},
          {"sequence_length", &DataSection::sequence_length,
           "tokens per sequence; 0 under rl, its default: those of the longest prompt and its response",
           from(0, kLong)},
          {"people_min", &DataSection::people_min, "fewest people in a puzzle, if source is \"kk\"",
           from(2, 8)},
          {"people_max", &DataSection::people_max, "most people in a puzzle, if source is \"kk\"",
           from(2, 8)},
          {"shuffle", &DataSection::shuffle, "shuffle the sequences differently in every epoch"},
          {"order", &DataSection::order,
           "order of the sequences: auto (as data.shuffle says), or rwkv (RWKV-LM's, with its magic prime)",
           words({"auto", "rwkv"})},
          {"magic_prime", &DataSection::magic_prime,
           "prime of data.order = \"rwkv\"; 0: the largest of the form 3n + 2 below tokens / sequence_length - "
           "1",
           from(0, kMany)},
          {"validation", &DataSection::validation,
           "held-out share of the sequences (the last ones), or files; default with data.order = \"rwkv\": 0",
           Valid{.range = {.min = 0, .max = 1, .below = true}, .path = true}},
          {"carry_state", &DataSection::carry_state,
           "each row continues that of the step before in the same place of the batch, from the state of a "
           "recurrent model after it; without a gradient across"},
          {"packing", &DataSection::packing,
           "pack several documents (or rows of sft) per row; attention and positions restart in each"},
          {"weights", &DataSection::weights,
           "shares of the rows, one number for each entry of source; without them the sources form one "
           "stream",
           above(0)},
          {"separator", &DataSection::separator,
           "id that ends a document in token files, for packing; -1: as the file's header or index states",
           from(-1, 2147483647)},
          {"template", &DataSection::chat_template,
           "chat template of conversations: auto (the tokenizer's own), a built-in one (chatml, llama3, "
           "qwen, mistral, gemma, rwkv), a Jinja file, or none (prompt and completion as they are)",
           path({"auto", "none", "chatml", "llama3", "qwen", "mistral", "gemma", "rwkv"})},
          {"train_on", &DataSection::train_on,
           "messages that sft and dpo train: assistant (every answer), last (the last answer), or all "
           "(every token)",
           words({"assistant", "last", "all"})},
          {"truncate", &DataSection::truncate,
           "conversations longer than a row: refuse (stop with an error), skip, or drop tokens from the "
           "left or right",
           words({"refuse", "skip", "left", "right"})},
          {"masked_rows", &DataSection::masked_rows,
           "rows of sft or pairs with nothing to train: skip, or refuse (stop with an error)",
           words({"skip", "refuse"})},
          {"empty_answers", &DataSection::empty_answers,
           "rows of sft or pairs with an empty answer: skip, train the end of the turn, or refuse (stop "
           "with an error)",
           words({"skip", "train", "refuse"})},
      });
  add<TrainSection>(
      table, "train", &RunConfig::train,
      {
          {"objective", &TrainSection::objective,
           "training objective: pretrain (every token), sft (the answers of conversations), reward or dpo "
           "(pairs of answers), kto (answers with a label), or rl (`mantissa rl`)",
           words({"pretrain", "sft", "reward", "dpo", "kto", "rl"})},
          {"attention_dropout", &TrainSection::attention_dropout,
           "share of attention's probabilities that a training step drops", from(0, kMostDropped)},
          {"residual_dropout", &TrainSection::residual_dropout,
           "share of what each sublayer adds to the residual stream that a training step drops",
           from(0, kMostDropped)},
          {"l2wrap", &TrainSection::l2wrap,
           "weight of the square of each token's largest logit, half of which pretrain and sft lower beside "
           "the loss (L2Wrap; RWKV-LM has 1e-4); 0: none",
           from(0)},
          {"z_loss", &TrainSection::z_loss,
           "weight of the square of the log-sum-exp of each token's logits, which pretrain and sft lower beside "
           "the loss (PaLM has 1e-4); 0: none",
           from(0)},
          {"router_aux_loss_coef", &TrainSection::router_aux_loss_coef,
           "weight of the load-balancing loss of a mixture of experts, which pretrain and sft lower beside the "
           "loss; 0: none; -1: router_aux_loss_coef of config.json if its output_router_logits is true, "
           "otherwise none",
           from(-1)},
      });
  add<AdapterSection>(
      table, "adapter", &RunConfig::adapter,
      {
          {"kind", &AdapterSection::kind,
           "what to train: none (all weights), lora (low-rank adapters of linear layers, on frozen weights), or "
           "state (the states with which the recurrences of rwkv7 begin)",
           words({"none", "lora", "state"})},
          {"rank", &AdapterSection::rank, "rank of the adapters", from(1, kLong)},
          {"alpha", &AdapterSection::alpha, "adapters are multiplied by alpha / rank", above(0)},
          {"target", &AdapterSection::target, "scopes of the adapted linear layers, as in rules"},
          {"rslora", &AdapterSection::rslora, "multiply by alpha / √rank instead (rsLoRA)"},
          {"dora", &AdapterSection::dora, "train the magnitude of each row of the weights too (DoRA)"},
          {"dropout", &AdapterSection::dropout,
           "share of the adapters' inputs that a training step drops; not with dora", from(0, kMostDropped)},
          {"base", &AdapterSection::base,
           "format of the frozen weights in memory: f32, bf16, f16, or params (that of the policy); int8, "
           "nf4 or nf4-double for those of linear layers (QLoRA)",
           words({"params", "f32", "bf16", "f16", "int8", "nf4", "nf4-double"})},
          {"path", &AdapterSection::path,
           "directory of an adapter of peft to continue from, with its rank, alpha, layers, rslora and dora; under "
           "state also RWKV-PEFT's file of states",
           path()},
      });
}

void add_optimization(std::vector<Option>& table) {
  add<BatchSection>(
      table, "batch", &RunConfig::batch,
      {
          {"global_batch_size", &BatchSection::global_batch_size, "sequences per optimizer step",
           from(1, kLong)},
          {"micro_batch_size", &BatchSection::micro_batch_size,
           "sequences per micro-batch; changes memory, but no bit; default: 8, or the largest smaller "
           "divisor of the batch",
           from(1, kLong)},
          {"leaf", &BatchSection::leaf, "sequences per leaf, whose gradients are one term of the sum",
           from(1, kLong)},
          {"shards", &BatchSection::shards,
           "gradient groups, added as data-parallel ranks would, in a fixed tree", from(1, kLong)},
          {"recompute", &BatchSection::recompute,
           "activations to recompute in the backward pass instead of keeping them: none, attention or "
           "block; changes memory and time, but no bit",
           words({"none", "attention", "block"})},
          {"chunk_tokens", &BatchSection::chunk_tokens,
           "tokens at a time of layers that treat tokens separately, such as the feed-forward: a multiple "
           "of 256, or 0 for all at once; changes memory, but no bit",
           from(0, kLong)},
      });
  add<OptimizerSection>(table, "optimizer", &RunConfig::optimizer,
                        {
                            {"name", &OptimizerSection::name, "update rule", words(optimizer_names())},
                            {"lr", &OptimizerSection::lr, "peak learning rate", above(0)},
                        });
  std::ranges::move(optimizer_options(), std::back_inserter(table));  // those of the update rules
  add<OptimizerSection>(table, "optimizer", &RunConfig::optimizer,
                        {
                            {"max_grad_norm", &OptimizerSection::max_grad_norm,
                             "largest gradient norm, enforced by clipping; 0: no clipping", from(0)},
                        });
  add<ScheduleSection>(
      table, "schedule", &RunConfig::schedule,
      {
          {"name", &ScheduleSection::name,
           "decay of the learning rate after warm-up; wsd: only at the end; rwkv: cosine with RWKV-LM's "
           "warm-up",
           words({"cosine", "constant", "linear", "wsd", "inverse-sqrt", "rwkv"})},
          {"warmup_steps", &ScheduleSection::warmup_steps,
           "steps of linear warm-up; default: 20, or all steps of a shorter run", from(0, kMany)},
          {"warmup_ratio", &ScheduleSection::warmup_ratio,
           "warm-up as a share of run.steps, rounded up, in place of warmup_steps", from(0, 1)},
          {"min_lr_ratio", &ScheduleSection::min_lr_ratio,
           "final learning rate as a share of the peak; of inverse-sqrt, the smallest", from(0, 1)},
          {"decay_steps", &ScheduleSection::decay_steps,
           "last steps of wsd, which decay; 0: a tenth of the steps", from(0, kMany)},
          {"decay", &ScheduleSection::decay, "course of the decay of wsd",
           words({"cosine", "linear", "1-sqrt"})},
          {"timescale", &ScheduleSection::timescale,
           "steps after warm-up in which inverse-sqrt falls to 0.71 of the peak; 0: those of the warm-up, or "
           "10000 without one",
           from(0, kMany)},
      });
  add<RunConfig>(
      table, "precision", std::identity{},
      {
          {"deepspeed", &RunConfig::deepspeed, "DeepSpeed JSON file, as for --deepspeed", path()},
          {"native_only", &RunConfig::native_only,
           "reject a run that needs a format without native support on the machine; changes no bit"},
      });
  add<LossScaleSection>(
      table, "precision.loss_scale", &RunConfig::loss_scale,
      {
          {"rule", &LossScaleSection::rule,
           "update rule of the scale: deepspeed, or torch (default window 2000)",
           words({"deepspeed", "torch"})},
          {"loss_scale", &LossScaleSection::loss_scale, "0: dynamic; otherwise the constant scale", from(0)},
          {"initial_scale_power", &LossScaleSection::initial_scale_power,
           "the initial scale is 2 to this power", from(0, 127)},
          {"loss_scale_window", &LossScaleSection::loss_scale_window, "clean steps before the scale doubles",
           from(1, kMany)},
          {"hysteresis", &LossScaleSection::hysteresis, "overflows before the scale halves", from(1, kMany)},
          {"consecutive_hysteresis", &LossScaleSection::consecutive_hysteresis,
           "a clean step resets the count of overflows"},
          {"min_loss_scale", &LossScaleSection::min_loss_scale, "smallest scale", above(0)},
          {"raise_error_at_min_scale", &LossScaleSection::raise_error_at_min_scale,
           "stop when the scale would fall below its minimum"},
          {"forward_overflow_patience", &LossScaleSection::forward_overflow_patience,
           "stop at this many steps in a row that overflow in the forward pass; 0: never", from(0, kMany)},
      });
  add<CheckpointSection>(
      table, "checkpoint", &RunConfig::checkpoint,
      {
          {"interval", &CheckpointSection::interval, "steps between saved states; 0: only at the end",
           from(0, kMany)},
          {"epochs", &CheckpointSection::epochs,
           "passes over the data between saved states, in place of interval; 0: none", from(0)},
          {"keep", &CheckpointSection::keep, "number of states to keep", from(1, kMany)},
      });
  add<LogSection>(table, "log", &RunConfig::log,
                  {
                      {"interval", &LogSection::interval,
                       "steps between lines of metrics.jsonl and TensorBoard", from(1, kMany)},
                      {"tensorboard", &LogSection::tensorboard, "write TensorBoard events"},
                      {"health_interval", &LogSection::health_interval,
                       "steps between measurements of what roundings lose; 0: none", from(0, kMany)},
                      {"observe", &LogSection::observe,
                       "values whose statistics are logged: \"SCOPE; SCOPE: op=softmax pass=backward\""},
                      {"observe_interval", &LogSection::observe_interval, "steps between these observations",
                       from(1, kMany)},
                  });
  add<DistributedSection>(
      table, "distributed", &RunConfig::distributed,
      {
          {"zero", &DistributedSection::zero,
           "what ranks divide among them (ZeRO): 0: nothing; 1: masters and the optimizer's moments; 2: also "
           "gradients; 3: also the weights that products read",
           from(0, 3)},
          {"sequence_shards", &DistributedSection::sequence_shards,
           "ranks that share the tokens of a row, for long rows: their number divides that of ranks; one "
           "process runs them as threads",
           from(1, 1024)},
          {"persistence_threshold", &DistributedSection::persistence_threshold,
           "elements of the smallest parameter that zero = 3 divides", from(0, kMany)},
          {"timeout", &DistributedSection::timeout,
           "seconds without an answer after which a rank of mpirun or srun counts as hanging", above(0)},
          {"check_interval", &DistributedSection::check_interval,
           "steps between comparisons of the weights of all ranks; 0: none", from(0, kMany)},
      });
}

}  // namespace

std::span<const Option> option_table() {
  static const std::vector<Option> table = [] {
    std::vector<Option> all;
    add_model_and_data(all);
    add_optimization(all);
    std::ranges::move(post_training_options(), std::back_inserter(all));
    return all;
  }();
  return table;
}

}  // namespace mantissa::config
