// A model directory as chat and training read it: config.json, generation_config.json, the tokenizer with its
// settings, the chat template and the weights.
#include "bundle.h"
#include "check.h"
#include "mantissa/generate/dialog/conversation.h"
#include "mantissa/generate/dialog/prompt_format.h"
#include "mantissa/setup/data/tokenizer.h"
#include "mantissa/text/chat/templates.h"
#include "mantissa/text/tokenizer/kinds.h"
#include "streams.h"
#include "target.h"

using namespace mantissa;

MANTISSA_FUZZ_TARGET(model_directory, fuzz::mutate_bundle) {
  const auto files = fuzz::parse_bundle({reinterpret_cast<const char*>(data), size});
  if (!files) return 0;
  const fuzz::Folder folder(*files);
  fuzz::expect_only_errors([&] { chat::special_tokens(folder.path()); });
  fuzz::expect_only_errors([&] { chat::find_model_template(folder.path()); });
  fuzz::expect_only_errors([&] { chat::find_model_template(folder.path(), "tool_use"); });
  fuzz::expect_only_errors([&] {
    const std::filesystem::path file = tokenizer::find_in_directory(folder.path());
    if (!file.empty()) fuzz::use(*tokenizer::make_tokenizer(file.string()));
  });
  fuzz::expect_only_errors([&] {
    const weights::ModelSource source = weights::find_model(folder.path());
    data::has_vocabulary(source);
    fuzz::expect_only_errors([&] {
      if (const auto tokenizer = data::tokenizer_of(source))
        dialog::answer_ends(*tokenizer, nullptr, source);
      else
        data::why_no_tokenizer(source);
    });
    dialog::PromptFormat format(source, "auto");
    format.fix_date();
    for (const std::int32_t id : format.ids_of({{"user", "Wie groß?"}, {"assistant", "3"}, {"user", "<s>"}}))
      fuzz::require(id >= 0 && id < source.config.vocab_size, "an id is in the vocabulary");
  });
  return 0;
}
