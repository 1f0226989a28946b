#include "mantissa/train/steps/gathered_objective.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <optional>
#include <span>

#include "mantissa/core/base/error.h"
#include "mantissa/core/tensor/row_blocks.h"

namespace mantissa::train {
namespace {

/// What stands before the elements of an output.
struct Header {
  std::uint8_t present = 0;
  Scalar type = Scalar::f32;
  std::uint64_t width = 1, bytes = 0;
};

void append(std::vector<std::byte>& all, std::span<const std::byte> bytes) {
  all.insert(all.end(), bytes.begin(), bytes.end());
}

void append(std::vector<std::byte>& all, const runtime::Values* values) {
  Header header;
  if (values != nullptr) {
    header = {1, values->type(), static_cast<std::uint64_t>(values->width()),
              values->size() * bytes_of(values->type())};
  }
  append(all, std::as_bytes(std::span(&header, 1)));
  if (values != nullptr) append(all, {values->data(), header.bytes});
}

const runtime::Values* pointer(const std::optional<runtime::Values>& values) {
  return values ? &*values : nullptr;
}

/// The outputs of one rank, in the order in which they were kept.
class Reader {
 public:
  explicit Reader(std::vector<std::byte> bytes)
      : bytes_(std::make_shared<const std::vector<std::byte>>(std::move(bytes))) {}

  bool at_end() const { return at_ == bytes_->size(); }

  objective::Outputs next() {
    const std::optional<runtime::Values> log_prob = values();
    if (!log_prob) throw InternalError("a rank sent no log-probabilities");
    objective::Outputs outputs{*log_prob};
    outputs.entropy = values();
    outputs.value = values();
    return outputs;
  }

 private:
  std::span<const std::byte> take(std::size_t count) {
    const std::span<const std::byte> taken = std::span(*bytes_).subspan(at_, count);
    at_ += count;
    return taken;
  }

  std::optional<runtime::Values> values() {
    Header header;
    std::memcpy(&header, take(sizeof header).data(), sizeof header);
    if (header.present == 0) return std::nullopt;
    // Elements of an odd number of headers are not aligned.
    const std::span<const std::byte> elements = take(header.bytes);
    auto own = std::make_shared<const std::vector<std::byte>>(elements.begin(), elements.end());
    const std::span<const std::byte> view = *own;
    return runtime::Values(view, header.type, static_cast<std::int64_t>(header.width), std::move(own));
  }

  std::shared_ptr<const std::vector<std::byte>> bytes_;
  std::size_t at_ = 0;
};

/// Returns the tokens of a block of a row.
std::size_t tokens_of_block(const Row& row, std::int64_t block, std::int64_t blocks) {
  return static_cast<std::size_t>(block_of(row.length, block, blocks).count());
}

/// Returns the outputs of whole rows, of which each reader has the early and the late block.
objective::Outputs joined(std::span<Reader> parts, const Extent& extent) {
  std::vector<objective::Outputs> of_parts;
  for (Reader& part : parts) of_parts.push_back(part.next());
  const auto blocks = static_cast<std::int64_t>(2 * parts.size());
  const auto join = [&](const auto& values_of) {
    const runtime::Values& first = values_of(of_parts.front());
    const std::size_t each = bytes_of(first.type());  // one number for each token
    auto all = std::make_shared<std::vector<std::byte>>();
    std::vector<std::size_t> taken(parts.size());  // bytes of earlier rows
    for (const Row& row : extent.rows) {
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t owner = std::min(block, blocks - 1 - block);
        const std::size_t before = block == owner ? 0 : tokens_of_block(row, owner, blocks) * each;
        const std::size_t bytes = tokens_of_block(row, block, blocks) * each;
        const std::byte* from = values_of(of_parts[static_cast<std::size_t>(owner)]).data() +
                                taken[static_cast<std::size_t>(owner)] + before;
        all->insert(all->end(), from, from + bytes);
      }
      for (std::int64_t p = 0; p < blocks / 2; ++p)
        taken[static_cast<std::size_t>(p)] +=
            (tokens_of_block(row, p, blocks) + tokens_of_block(row, blocks - 1 - p, blocks)) * each;
    }
    const std::span<const std::byte> view = *all;
    return runtime::Values(view, first.type(), first.width(), std::move(all));
  };
  objective::Outputs whole{
      join([](const objective::Outputs& o) -> const runtime::Values& { return o.log_prob; })};
  if (of_parts.front().entropy)
    whole.entropy = join([](const objective::Outputs& o) -> const runtime::Values& { return *o.entropy; });
  if (of_parts.front().value)
    whole.value = join([](const objective::Outputs& o) -> const runtime::Values& { return *o.value; });
  return whole;
}

}  // namespace

Share share_of(int rank, int ranks, std::int64_t items, std::int64_t part) {
  const std::int64_t parts = (items + part - 1) / part;
  const auto at = [&](int r) { return std::min(items, parts * r / ranks * part); };
  return {at(rank), at(rank + 1)};
}

void GatheredObjective::begin(const objective::Step& step) {
  step_ = step;
  objective_.begin(step);
}

void GatheredObjective::seeds(const objective::MicroBatch& micro, const objective::Outputs* outputs,
                              const objective::Seeds& seeds) {
  seeded_ = true;
  seeds_entropy_ = !seeds.entropy.empty();
  seeds_value_ = !seeds.value.empty();
  objective_.seeds(micro, outputs, seeds);
}

void GatheredObjective::observe(const objective::MicroBatch& micro, const objective::Outputs& outputs) {
  if (ranks_.alone()) return objective_.observe(micro, outputs);
  append(kept_, &outputs.log_prob);
  append(kept_, pointer(outputs.entropy));
  append(kept_, pointer(outputs.value));
}

void GatheredObjective::gather(const std::function<objective::MicroBatch()>& next, bool in_turns) {
  if (ranks_.alone()) return;
  objective_.begin(step_);
  std::vector<Reader> of_ranks;
  for (std::vector<std::byte>& bytes : ranks_.all_gather(kept_)) of_ranks.emplace_back(std::move(bytes));
  for (std::size_t rank = 0; rank < of_ranks.size();) {
    if (of_ranks[rank].at_end()) {
      rank += parts_;
      continue;
    }
    const objective::MicroBatch micro = next();
    const objective::Outputs values =
        parts_ == 1 ? of_ranks[rank].next()
                    : joined(std::span(of_ranks).subspan(rank, parts_), micro.batch.extent());
    if (in_turns) rank = (rank + parts_) % of_ranks.size();  // all have equally many
    if (seeded_ && !objective_.seeds_known()) {              // losses that are computed with the seeds
      const auto tokens = static_cast<std::size_t>(micro.batch.tokens());
      std::vector<double> log_prob(tokens), entropy(seeds_entropy_ ? tokens : 0),
          value(seeds_value_ ? tokens : 0);
      objective_.seeds(micro, &values, {log_prob, entropy, value});
    }
    objective_.observe(micro, values);
  }
  kept_.clear();
}

}  // namespace mantissa::train
