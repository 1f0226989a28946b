#include "mantissa/files/gguf/check_sizes.h"

#include <fmt/format.h>

#include <algorithm>

namespace mantissa::gguf {
namespace {

using Size = std::optional<std::int64_t>;

class Sizes {
 public:
  Sizes(const GgufFile& file, const Architecture& architecture) : file_(file), architecture_(architecture) {}

  void check() const {
    const bool rwkv = architecture_.name == "rwkv7";
    for (const char* name : {"block_count", "embedding_length", "feed_forward_length", kHeads, kKeyHeads}) {
      if (rwkv && (name == kHeads || name == kKeyHeads)) continue;  // files have 0 there
      if (const Size size = value(name); size && *size < 1) bad(name, *size, "must be positive");
    }
    check_blocks();
    check_columns("embedding_length", "token_embd.weight");
    check_rows("feed_forward_length", rwkv                           ? "channel_mix_key.weight"
                                      : architecture_.name == "gpt2" ? "ffn_up.weight"
                                                                     : "ffn_gate.weight");
    return rwkv ? check_rwkv() : check_heads();
  }

 private:
  static constexpr const char* kHeads = "attention.head_count";
  static constexpr const char* kKeyHeads = "attention.head_count_kv";
  static constexpr const char* kHeadSize = "attention.key_length";
  static constexpr const char* kRotated = "rope.dimension_count";

  std::string key(std::string_view name) const { return fmt::format("{}.{}", architecture_.name, name); }

  /// Returns a size, or null if it is missing or differs between layers.
  Size value(std::string_view name) const {
    const Value* found = file_.value(key(name));
    if (found == nullptr) return std::nullopt;
    const auto* list = std::get_if<Integers>(found);
    if (list == nullptr) return file_.integer(key(name));
    const bool same =
        !list->empty() && std::ranges::all_of(*list, [&](std::int64_t v) { return v == list->front(); });
    return same ? Size(list->front()) : std::nullopt;
  }

  const FileTensor* matrix(std::string_view name) const {
    const FileTensor* found = file_.find(name);
    return found != nullptr && found->shape.size() == 2 ? found : nullptr;
  }
  const FileTensor* of_layer(std::string_view name) const { return matrix(fmt::format("blk.0.{}", name)); }

  [[noreturn]] void bad(std::string_view name, std::int64_t is, const std::string& why) const {
    file_.fail(fmt::format("{} is {}, but {}. Fix: download the file again", key(name), is, why));
  }

  void check_blocks() const {
    const Size blocks = value("block_count");
    if (!blocks) return;
    const auto layer = [&](std::int64_t i) {
      return fmt::format("blk.{}.{}", i, architecture_.layers.front().gguf);
    };
    if (file_.find(layer(0)) == nullptr) return;
    if (file_.find(layer(*blocks - 1)) == nullptr)
      bad("block_count", *blocks, fmt::format("there is no tensor {}", layer(*blocks - 1)));
    if (file_.find(layer(*blocks)) != nullptr)
      bad("block_count", *blocks, fmt::format("there is a tensor {}", layer(*blocks)));
  }

  void check_columns(const char* name, const char* tensor) const {
    const FileTensor* found = matrix(tensor);
    const Size size = value(name);
    if (found == nullptr || !size || found->shape.back() == *size) return;
    bad(name, *size, fmt::format("the rows of tensor {} have {} elements", tensor, found->shape.back()));
  }
  void check_rows(const char* name, const char* tensor) const {
    const FileTensor* found = of_layer(tensor);
    const Size size = value(name);
    if (found == nullptr || !size || found->shape.front() == *size) return;
    bad(name, *size, fmt::format("tensor blk.0.{} has {} rows", tensor, found->shape.front()));
  }

  void check_rwkv() const {
    const Size head = value("wkv.head_size"), hidden = value("embedding_length");
    if (head && hidden && (*head < 1 || *hidden % *head != 0)) {
      bad("wkv.head_size", *head,
          fmt::format("it does not divide {}, which is {}", key("embedding_length"), *hidden));
    }
    check_rows("attention.decay_lora_rank", "time_mix_w1.weight");
    check_rows("attention.iclr_lora_rank", "time_mix_a1.weight");
    check_rows("attention.gate_lora_rank", "time_mix_g1.weight");
  }

  void check_heads() const {
    const Size heads = value(kHeads), hidden = value("embedding_length"), given = value(kHeadSize);
    if (!heads || !hidden) return;
    if (!given && *hidden % *heads != 0) {
      bad(kHeads, *heads,
          fmt::format("it does not divide {}, which is {}", key("embedding_length"), *hidden));
    }
    const FileTensor* q = of_layer("attn_q.weight");
    const FileTensor* k = of_layer("attn_k.weight");
    if (q == nullptr || k == nullptr) return;
    const std::int64_t key_heads = value(kKeyHeads).value_or(*heads), head = given.value_or(*hidden / *heads);
    const std::int64_t q_rows = q->shape.front(), k_rows = k->shape.front();
    const Size rotated = architecture_.name == "stablelm" ? std::nullopt : value(kRotated);
    // The size of a head that another key gives tells which number of heads is wrong.
    const std::int64_t true_head = given.value_or(rotated.value_or(head));
    if (true_head > 0 && q_rows != *heads * true_head) {
      bad(kHeads, *heads,
          fmt::format("tensor blk.0.attn_q.weight has {} rows, and a head {} by {}", q_rows, true_head,
                      key(given     ? kHeadSize
                          : rotated ? kRotated
                                    : "embedding_length")));
    }
    if (k_rows == key_heads * head) return;
    const std::string rows =
        fmt::format("tensor blk.0.attn_k.weight has {} rows, and a head {}", k_rows, head);
    if (given || rotated || !value(kKeyHeads)) bad(value(kKeyHeads) ? kKeyHeads : kHeads, key_heads, rows);
    bad(kHeads, *heads, fmt::format("{} is {}, {}", key(kKeyHeads), key_heads, rows));
  }

  const GgufFile& file_;
  const Architecture& architecture_;
};

}  // namespace

void check_sizes(const GgufFile& file, const Architecture& architecture) {
  Sizes(file, architecture).check();
}

}  // namespace mantissa::gguf
