// Batch sizes, clipping, optimizer and scheduler of a DeepSpeed file.
#include <fmt/format.h>

#include <string>

#include "mantissa/core/base/error_text.h"
#include "mantissa/core/base/words.h"
#include "mantissa/precision/compat/deepspeed_block.h"

namespace mantissa::compat {
namespace {

constexpr std::string_view kBatch = "batch", kOptimizer = "optimizer", kSchedule = "schedule";

std::string toml(double value) {
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".en") == std::string::npos ? text + ".0" : text;
}

struct Run {
  DeepSpeedBlock& root;
  DeepSpeedFile& out;

  void set(ConfigKey to, std::string value, std::string from) {
    // A scheduler's learning rate is read after the optimizer's and overrides it.
    std::erase_if(out.settings,
                  [&](const DeepSpeedSetting& s) { return s.section == to.section && s.key == to.key; });
    out.settings.push_back({std::string(to.section), std::string(to.key), std::move(value), std::move(from)});
  }
  void number(DeepSpeedBlock& block, std::string_view key, ConfigKey to) {
    if (const auto value = block.number(key, to)) set(to, toml(*value), block.path(key));
  }

  /// train_batch_size = train_micro_batch_size_per_gpu · gradient_accumulation_steps · ranks. This run has
  /// one rank, which runs the accumulation steps of all.
  void batch() {
    constexpr ConfigKey kGlobal = {kBatch, "global_batch_size"}, kMicro = {kBatch, "micro_batch_size"};
    constexpr const char* kMicroName = "train_micro_batch_size_per_gpu";
    const auto total = root.whole("train_batch_size", 1, kGlobal);
    auto micro = root.whole(kMicroName, 1, kMicro);
    const auto steps = root.whole("gradient_accumulation_steps", 1, kMicro);
    if (total && (micro || steps)) {
      const std::int64_t part = micro.value_or(1), times = steps.value_or(1);
      if (part > *total || times > *total || *total % part != 0 || *total / part % times != 0) {
        std::string product = micro ? fmt::format("{} = {}", kMicroName, part) : "";
        if (steps) {
          product += fmt::format("{}gradient_accumulation_steps = {}", micro ? " times " : "", times);
        }
        throw ConfigError("{}: train_batch_size = {} is not a multiple of {}; change or remove one of them",
                          out.name, *total, product);
      }
      if (micro && steps && *total / part / times > 1) {
        out.notes.push_back(
            fmt::format("train_batch_size {} = {} sequences × {} accumulation steps × {} ranks; one process "
                        "runs them in {} steps; --set batch.shards={} adds their gradients as ranks would",
                        *total, part, times, *total / part / times, *total / part, *total / part / times));
      }
      if (!micro) micro = *total / times;
    }
    if (total) {
      set(kGlobal, std::to_string(*total), "train_batch_size");
    } else if (micro && steps) {
      constexpr std::int64_t kMost = std::int64_t{1} << 31;
      if (*micro > kMost || *steps > kMost)
        root.refuse(kMicroName, "is too large with gradient_accumulation_steps");
      set(kGlobal, std::to_string(*micro * *steps),
          fmt::format("{} × gradient_accumulation_steps", kMicroName));
    } else if (steps) {
      out.accumulation = steps;
    } else if (micro && !root.has("train_batch_size") && !root.has("gradient_accumulation_steps")) {
      set(kGlobal, std::to_string(*micro), kMicroName);  // DeepSpeed then accumulates nothing
    }
    if (micro)
      set(kMicro, std::to_string(*micro), root.has(kMicroName) ? kMicroName : "gradient_accumulation_steps");
  }

  void clipping() {
    constexpr ConfigKey kNorm = {kOptimizer, "max_grad_norm"};
    const auto norm = root.number("gradient_clipping", kNorm);
    if (norm && *norm < 0) root.refuse("gradient_clipping", "must be at least 0 (0: never)");
    if (norm) set(kNorm, toml(*norm), "gradient_clipping");
  }

  void betas(DeepSpeedBlock& params) {
    constexpr ConfigKey kBetas = {kOptimizer, "betas"};
    const auto betas = params.numbers("betas", kBetas);
    if (!betas) return;
    if (betas->size() != 2) params.refuse("betas", "must be two numbers");
    set(kBetas, fmt::format("[{}, {}]", toml((*betas)[0]), toml((*betas)[1])), params.path("betas"));
  }

  void optimizer() {
    DeepSpeedBlock block = root.block("optimizer");
    if (!block.exists()) return;
    constexpr ConfigKey kName = {kOptimizer, "name"};
    const std::optional<std::string> given = block.text("type", kName);
    const std::string type = given.value_or("AdamW");
    const std::string folded = lowered(type);
    const bool adam = folded == "adam" || folded == "adamw" || folded == "fusedadam" ||
                      folded == "deepspeedcpuadam" || folded == "cpuadam" || folded == "cpu_adam" ||
                      folded == "torchadam";
    if (!adam) {
      block.skip("params");
      out.warnings.push_back(fmt::format(
          "optimizer.type {} is not translated: the run keeps the optimizer of the config and its settings",
          in_quotes(type)));
      return;
    }
    DeepSpeedBlock params = block.block("params");
    // DeepSpeed treats "Adam" as AdamW unless adam_w_mode is false. It ignores that key for "AdamW".
    const bool decoupled = params.flag("adam_w_mode").value_or(true) || folded == "adamw";
    const std::string from = decoupled ? block.path("type") : params.path("adam_w_mode");
    if (given) set(kName, decoupled ? "\"adamw\"" : "\"adam\"", from);
    number(params, "lr", {kOptimizer, "lr"});
    betas(params);
    number(params, "eps", {kOptimizer, "eps"});
    number(params, "weight_decay", {kOptimizer, "weight_decay"});
    if (!params.flag("bias_correction").value_or(true)) {
      out.warnings.push_back(
          "optimizer.params.bias_correction = false: this run always corrects the moments");
    }
    params.skip("torch_adam");
    params.rest();
    block.rest();
  }

  /// Reads warmup_num_steps and the peak learning rate of the warm-up.
  void warmup(DeepSpeedBlock& params) {
    constexpr ConfigKey kSteps = {kSchedule, "warmup_steps"};
    if (const auto steps = params.whole("warmup_num_steps", 0, kSteps))
      set(kSteps, std::to_string(*steps), params.path("warmup_num_steps"));
    const auto top = params.number("warmup_max_lr", {kOptimizer, "lr"});
    if (top && *top > 0) set({kOptimizer, "lr"}, toml(*top), params.path("warmup_max_lr"));
    const double bottom = params.number("warmup_min_lr").value_or(0);
    const double share = params.number("warmup_min_ratio").value_or(0);
    if (bottom != 0 || share != 0) {
      out.warnings.push_back(fmt::format("{} is not 0: this run's warm-up starts at 0",
                                         params.path(bottom != 0 ? "warmup_min_lr" : "warmup_min_ratio")));
    }
    const std::string course = params.text("warmup_type").value_or("log");
    if (!params.is_auto("warmup_type") && course != "linear") {
      out.warnings.push_back(fmt::format("{} is log, DeepSpeed's default: this run's warm-up is linear",
                                         params.path("warmup_type")));
    }
    params.skip("last_batch_iteration");
    params.number("total_num_steps", {"run", "steps"});
  }

  void scheduler() {
    DeepSpeedBlock block = root.block("scheduler");
    if (!block.exists()) return;
    const std::optional<std::string> type = block.text("type", {kSchedule, "name"});
    if (!type) {
      block.skip("params");
      return;
    }
    constexpr ConfigKey kName = {kSchedule, "name"}, kMinimum = {kSchedule, "min_lr_ratio"};
    const bool linear = *type == "WarmupDecayLR", cosine = *type == "WarmupCosineLR";
    if (*type != "WarmupLR" && !linear && !cosine) {
      block.skip("params");
      static const std::vector<std::string> kNames = {"WarmupLR", "WarmupDecayLR", "WarmupCosineLR"};
      out.warnings.push_back(
          fmt::format("scheduler.type {} is not available{}: the run keeps the schedule of the config",
                      in_quotes(*type), did_you_mean(*type, kNames)));
      return;
    }
    DeepSpeedBlock params = block.block("params");
    set(kName, linear ? "\"linear\"" : cosine ? "\"cosine\"" : "\"constant\"", "scheduler.type");
    if (linear) set(kMinimum, "0.0", "scheduler.type");
    if (cosine)
      set(kMinimum, toml(params.number("cos_min_ratio", kMinimum).value_or(0.0001)),
          params.path("cos_min_ratio"));
    warmup(params);
    if (params.has("total_num_steps") && !params.is_auto("total_num_steps") && (linear || cosine)) {
      out.warnings.push_back(
          "scheduler.params.total_num_steps is ignored: the learning rate decays until run.steps");
    }
    params.rest();
    block.rest();
  }
};

}  // namespace

void read_run(DeepSpeedBlock& root, DeepSpeedFile& out) {
  Run run{root, out};
  run.batch();
  run.clipping();
  run.optimizer();
  run.scheduler();
}

}  // namespace mantissa::compat
