#include "mantissa/text/tokenizer/patterns.h"

#include <fmt/format.h>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <new>
#include <stdexcept>

#include "mantissa/core/base/error_text.h"
#include "mantissa/text/tokenizer/onig_classes.h"
#include "mantissa/text/tokenizer/onig_syntax.h"
#include "mantissa/text/tokenizer/utf8.h"

namespace mantissa::tokenizer {
namespace {

// Oniguruma gives up after as many retries.
constexpr std::uint32_t kMostSteps = 10'000'000;
constexpr std::size_t kFirstStack = 32 << 10, kLargestStack = 64 << 20;

std::string pcre2_message(int code) {
  PCRE2_UCHAR8 text[256];
  if (pcre2_get_error_message_8(code, text, sizeof text) < 0) return fmt::format("PCRE2 error {}", code);
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct MatchMemory::State {
  pcre2_match_data_8* data = pcre2_match_data_create_8(1, nullptr);
  pcre2_match_context_8* context = pcre2_match_context_create_8(nullptr);
  pcre2_jit_stack_8* stack = pcre2_jit_stack_create_8(kFirstStack, kLargestStack, nullptr);

  State() {
    if (!data || !context) throw std::bad_alloc();
    pcre2_set_match_limit_8(context, kMostSteps);
    if (stack) pcre2_jit_stack_assign_8(context, nullptr, stack);
  }
  ~State() {
    pcre2_match_data_free_8(data);
    pcre2_match_context_free_8(context);
    if (stack) pcre2_jit_stack_free_8(stack);
  }
};

MatchMemory::MatchMemory() : state_(std::make_unique<State>()) {}
MatchMemory::MatchMemory(MatchMemory&&) noexcept = default;
MatchMemory::~MatchMemory() = default;

struct Pattern::Code {
  pcre2_code_8* code = nullptr;
  std::string shown;  // as written in the file
  ~Code() { pcre2_code_free_8(code); }
};

Pattern::Pattern(std::unique_ptr<Code> code) : code_(std::move(code)) {}
Pattern::Pattern(Pattern&&) noexcept = default;
Pattern& Pattern::operator=(Pattern&&) noexcept = default;
Pattern::~Pattern() = default;

Pattern Pattern::pcre2(std::string_view expression, std::string_view shown) {
  int error = 0;
  PCRE2_SIZE where = 0;
  auto code = std::make_unique<Code>();
  pcre2_compile_context_8* context = pcre2_compile_context_create_8(nullptr);
  if (!context) throw std::bad_alloc();
  pcre2_set_newline_8(context, PCRE2_NEWLINE_LF);
  code->code = pcre2_compile_8(reinterpret_cast<PCRE2_SPTR8>(expression.data()), expression.size(),
                               PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C, &error,
                               &where, context);
  pcre2_compile_context_free_8(context);
  if (!code->code) throw std::invalid_argument(pcre2_message(error));
  pcre2_jit_compile_8(code->code, PCRE2_JIT_COMPLETE);  // without JIT, matching is slower but the same
  code->shown = shown.size() > 60 ? fmt::format("{}...", shown.substr(0, 57)) : std::string(shown);
  return Pattern(std::move(code));
}

Pattern Pattern::onig(std::string_view expression) {
  return pcre2(pcre2_from_onig(expression), expression);
}

Pattern Pattern::literal(std::string_view text) {
  std::string expression;
  for (std::size_t at = 0; at < text.size();) expression += class_item(next_code_point(text, at));
  return pcre2(expression, text);
}

bool Pattern::find(std::string_view text, std::size_t from, MatchMemory& memory, std::size_t& start,
                   std::size_t& end) const {
  const MatchMemory::State& state = memory.state();
  const int found = pcre2_match_8(code_->code, reinterpret_cast<PCRE2_SPTR8>(text.data()), text.size(), from,
                                  PCRE2_NO_UTF_CHECK, state.data, state.context);
  if (found == PCRE2_ERROR_NOMATCH) return false;
  if (found < 0) {
    throw ConfigError(
        "the tokenizer's pattern {} cannot be matched at byte {} of a text of {} bytes: {}. Fix: split "
        "the text, or simplify the pattern.",
        code_->shown, from, text.size(), pcre2_message(found));
  }
  const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer_8(state.data);
  start = offsets[0];
  end = offsets[1];
  return true;
}

}  // namespace mantissa::tokenizer
