#include "mantissa/train/run/work.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "mantissa/core/base/error_text.h"
#include "mantissa/setup/data/labelled_rows.h"
#include "mantissa/setup/data/pair_rows.h"
#include "mantissa/train/steps/kto_task.h"
#include "mantissa/train/steps/preference_task.h"

namespace mantissa::run {
namespace {

bool is_on_pairs(const config::RunConfig& config) {
  return config.train.objective == "dpo" || config.train.objective == "reward";
}

/// Removes pad_token_id from the config of a reward model whose rows end with it. transformers' classifiers
/// read the score before padding, so they would read it before the row's last token.
void settle_padding(weights::ModelSource& source, const std::set<std::int32_t>& last_ids,
                    std::vector<std::string>* notes) {
  nlohmann::json& json = source.config.source;
  const auto pad = json.find("pad_token_id");
  if (pad == json.end() || !pad->is_number_integer()) return;
  const auto id = pad->get<std::int64_t>();
  if (id < 0 || id > 2147483647 || !last_ids.contains(static_cast<std::int32_t>(id))) return;
  if (notes != nullptr) {
    notes->push_back(fmt::format(
        "pad_token_id = {} ends rows, after which scores are read: the written config.json has no "
        "pad_token_id, so that transformers reads them there too. Set one that is not in the rows to score "
        "batches",
        id));
  }
  json["pad_token_id"] = nullptr;
}

}  // namespace

Work work_of(const config::RunConfig& config, weights::ModelSource& source, data::Memory memory,
             const runtime::Device& device, std::vector<std::string>* notes, rl::OnRollout on_rollout,
             rl::MakeRule make_rule) {
  const bool online = config.train.objective == "rl";
  if (make_rule && !online)
    throw ConfigError(
        "train.objective = \"{}\" has no rewards. Fix: set it to rl, or give no reward function",
        config.train.objective);
  if (config.train.objective == "pretrain" || config.train.objective == "sft")
    return {config, train::corpus_task(data::load_dataset(config, source.config, std::move(memory), notes))};
  if (memory.any()) {
    throw ConfigError("train.objective = \"{}\" reads its {} from data.source, not from memory",
                      config.train.objective,
                      online                ? "prompts"
                      : is_on_pairs(config) ? "pairs"
                                            : "rows");
  }
  if (config.train.objective == "kto") {
    data::LabelledSet set = data::load_labelled(config, source.config, notes);
    return {config,
            train::kto_task(
                config, source,
                {std::move(set.rows), std::move(set.desirable), std::move(set.held_out_desirable)}, device)};
  }
  if (online) {
    rl::Prepared p = rl::prepare(config, source.config, make_rule);
    if (notes != nullptr) std::ranges::move(p.notes, std::back_inserter(*notes));
    auto task = rl::task(p.config, source, p.prompts, std::move(on_rollout), device, std::move(make_rule));
    return {std::move(p.config), std::move(task)};
  }
  data::PairSet pairs = data::load_pairs(config, source.config, notes);
  if (source.config.scores) settle_padding(source, pairs.last_ids, notes);
  return {config,
          train::preference_task(
              config, source,
              {std::move(pairs.rows), std::move(pairs.margins), std::move(pairs.held_out_margins)}, device)};
}

}  // namespace mantissa::run
