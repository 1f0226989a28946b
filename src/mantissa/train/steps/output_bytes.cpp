#include "mantissa/train/steps/output_bytes.h"

#include <algorithm>
#include <cstring>
#include <optional>

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

/// Returns the tokens of a block of a row, with its padding.
std::size_t tokens_of_block(std::int64_t length, std::int64_t block, std::int64_t blocks) {
  return static_cast<std::size_t>(block_of(shared_length(length, blocks / 2), block, blocks).count());
}

}  // namespace

void append_outputs(std::vector<std::byte>& all, const objective::Outputs& outputs) {
  append(all, &outputs.log_prob);
  append(all, pointer(outputs.entropy));
  append(all, pointer(outputs.value));
  append(all, pointer(outputs.balance));
}

std::size_t output_bytes(const objective::Outputs& outputs, std::size_t tokens) {
  std::size_t bytes = 0;
  for (const runtime::Values* values :
       {&outputs.log_prob, pointer(outputs.entropy), pointer(outputs.value), pointer(outputs.balance)}) {
    bytes += sizeof(Header);
    if (values != nullptr && values->size() > 0) bytes += tokens * bytes_of(values->type());
  }
  return bytes;
}

OutputReader::OutputReader(std::vector<std::byte> bytes)
    : bytes_(std::make_shared<const std::vector<std::byte>>(std::move(bytes))) {}

objective::Outputs OutputReader::next() {
  const auto take = [&](std::size_t count) {
    const std::span<const std::byte> taken = std::span(*bytes_).subspan(at_, count);
    at_ += count;
    return taken;
  };
  const auto values = [&]() -> std::optional<runtime::Values> {
    Header header;
    std::memcpy(&header, take(sizeof header).data(), sizeof header);
    if (header.present == 0) return std::nullopt;
    // Elements of an odd number of headers are not aligned.
    const std::span<const std::byte> elements = take(header.bytes);
    auto own = std::make_shared<const std::vector<std::byte>>(elements.begin(), elements.end());
    const std::span<const std::byte> view = *own;
    return runtime::Values(view, header.type, static_cast<std::int64_t>(header.width), std::move(own));
  };
  const std::optional<runtime::Values> log_prob = values();
  if (!log_prob) throw InternalError("a rank sent no log-probabilities");
  objective::Outputs outputs{*log_prob};
  outputs.entropy = values();
  outputs.value = values();
  outputs.balance = values();
  return outputs;
}

objective::Outputs joined_outputs(std::span<OutputReader> parts, std::span<const std::int64_t> lengths) {
  std::vector<objective::Outputs> of_parts;
  for (OutputReader& part : parts) of_parts.push_back(part.next());
  const auto blocks = static_cast<std::int64_t>(2 * parts.size());
  const auto join = [&](const auto& values_of) {
    const runtime::Values& first = values_of(of_parts.front());
    if (first.size() == 0) return first;              // the program has no such output
    const std::size_t each = bytes_of(first.type());  // one number for each token
    auto all = std::make_shared<std::vector<std::byte>>();
    std::vector<std::size_t> taken(parts.size());  // bytes of earlier rows
    for (const std::int64_t length : lengths) {
      const std::size_t end = all->size() + static_cast<std::size_t>(length) * each;
      for (std::int64_t block = 0; block < blocks; ++block) {
        const std::int64_t owner = std::min(block, blocks - 1 - block);
        const std::size_t before = block == owner ? 0 : tokens_of_block(length, owner, blocks) * each;
        const std::size_t bytes = tokens_of_block(length, block, blocks) * each;
        const std::byte* from = values_of(of_parts[static_cast<std::size_t>(owner)]).data() +
                                taken[static_cast<std::size_t>(owner)] + before;
        all->insert(all->end(), from, from + bytes);
      }
      all->resize(end);  // without padding
      for (std::int64_t p = 0; p < blocks / 2; ++p)
        taken[static_cast<std::size_t>(p)] +=
            (tokens_of_block(length, p, blocks) + tokens_of_block(length, blocks - 1 - p, blocks)) * each;
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

}  // namespace mantissa::train
