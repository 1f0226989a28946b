// mantissa tokenizer encode, decode, info, train
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <cstdio>
#include <iostream>
#include <iterator>
#include <nlohmann/json.hpp>

#include "mantissa/app/api/error.h"
#include "mantissa/app/cli/common.h"
#include "mantissa/core/base/printable.h"

namespace mantissa::cli {
namespace {

/// Returns the bytes of the file that `option` names, or of standard input.
std::string input_of(const Arguments& a, const char* option) {
  if (a.has(option)) return api::read_text(a.text(option));
  std::cin >> std::noskipws;
  return {std::istreambuf_iterator<char>(std::cin), {}};
}

void print(const nlohmann::json& json) {
  fmt::print("{}\n", json.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

nlohmann::json token_json(const api::Tokenizer& tokenizer, std::optional<std::int32_t> id) {
  if (!id) return nullptr;
  const std::optional<std::string> token = tokenizer.token(*id);
  return {{"id", *id}, {"token", token ? nlohmann::json(*token) : nlohmann::json()}};
}

std::string token_text(const api::Tokenizer& tokenizer, std::optional<std::int32_t> id) {
  if (!id) return "none";
  const std::optional<std::string> token = tokenizer.token(*id);
  return token ? fmt::format("{} ({})", *id, printable(*token)) : fmt::format("{}", *id);
}

int tokenizer_encode(const Arguments& a) {
  const api::Tokenizer tokenizer(a.at(0));
  const std::string text = input_of(a, "--text-file");
  const std::vector<std::int32_t> ids = tokenizer.encode(text);
  if (a.has("--json")) {
    print({{"ids", ids}, {"text", text}});
  } else {
    fmt::print("{}\n", fmt::join(ids, " "));
  }
  return 0;
}

int tokenizer_decode(const Arguments& a) {
  const api::Tokenizer tokenizer(a.at(0));
  const std::string where = a.has("--ids-file") ? a.text("--ids-file") : "standard input";
  const std::vector<std::int32_t> ids = api::read_ids(input_of(a, "--ids-file"), where);
  const std::string text = tokenizer.decode(ids);
  if (a.has("--json")) {
    print({{"ids", ids}, {"text", text}});
  } else {
    std::fwrite(text.data(), 1, text.size(), stdout);  // exactly its bytes
  }
  return 0;
}

int tokenizer_info(const Arguments& a) {
  const api::Tokenizer tokenizer(a.at(0));
  nlohmann::json special = nlohmann::json::array();
  for (std::int64_t id = 0; id < tokenizer.vocabulary(); ++id) {
    const auto token = static_cast<std::int32_t>(id);
    if (tokenizer.special(token)) special.push_back(token_json(tokenizer, token));
  }
  if (a.has("--json")) {
    print({{"name", tokenizer.name()},
           {"vocabulary", tokenizer.vocabulary()},
           {"bos", token_json(tokenizer, tokenizer.bos())},
           {"eos", token_json(tokenizer, tokenizer.eos())},
           {"special", special}});
    return 0;
  }
  fmt::print("name        {}\nvocabulary  {}\nbegin       {}\nend         {}\nspecial     {}\n",
             tokenizer.name(), tokenizer.vocabulary(), token_text(tokenizer, tokenizer.bos()),
             token_text(tokenizer, tokenizer.eos()), special.size());
  return 0;
}

int tokenizer_train(const Arguments& a) {
  const std::string out = a.text("--out");
  if (out.empty()) throw ConfigError("tokenizer train: requires --out DIR, the directory for tokenizer.json");
  api::TokenizerTraining options;
  options.vocabulary = a.integer("--vocab-size", 1, std::int64_t{1} << 24);
  options.threads = static_cast<int>(a.integer("--threads", 0, 4096));
  options.overwrite = a.has("--overwrite");
  const std::vector<std::filesystem::path> files(a.given().begin(), a.given().end());
  const api::TrainedTokenizer trained = api::train_tokenizer(files, out, options);
  if (a.has("--json")) {
    print({{"vocabulary", trained.vocabulary}, {"words", trained.words}, {"bytes", trained.bytes}});
  } else {
    fmt::print("{} entries from {} different words of {} bytes\n", trained.vocabulary, trained.words,
               trained.bytes);
  }
  return 0;
}

}  // namespace

Commands tokenizer_commands() {
  return {
      {.name = "tokenizer encode",
       .summary = "print the token ids of a text",
       .positionals = {{"TOKENIZER", "byte, a tokenizer file, or a model directory or GGUF file with one"}},
       .details = "Special tokens in the text are recognized if the tokenizer is a tokenizer.json, and the "
                  "ids that its post-processor adds are included. Nothing else is added.",
       .options = {{"--text-file", one, "FILE", "file with the text; default: standard input"}},
       .groups = {kResults},
       .run = tokenizer_encode},
      {.name = "tokenizer decode",
       .summary = "write the text of token ids to standard output, with special tokens",
       .positionals = {{"TOKENIZER", "byte, a tokenizer file, or a model directory or GGUF file with one"}},
       .options = {{"--ids-file", one, "FILE",
                    "the ids: JSON of tokenizer encode, a JSON array, or numbers; default: standard input"}},
       .groups = {kResults},
       .run = tokenizer_decode},
      {.name = "tokenizer info",
       .summary = "describe a tokenizer: entries, and tokens that begin and end a text",
       .positionals = {{"TOKENIZER", "byte, a tokenizer file, or a model directory or GGUF file with one"}},
       .groups = {kResults},
       .run = tokenizer_info},
      {.name = "tokenizer train",
       .summary = "train byte-level BPE on text files, and write tokenizer.json",
       .positionals = {{"FILE", "a text file"}, {"[FILE…]", "more text files"}},
       .details = "The file is one of Hugging Face's library tokenizers, with the end token <|endoftext|>, "
                  "and the merges are those of its trainer. The result depends only on the text and the "
                  "number of entries.",
       .options = {{"--vocab-size", one, "N", "largest number of entries", "32000"},
                   {"--out", one, "DIR", "directory for tokenizer.json"},
                   {"--overwrite", "replace the tokenizer in the directory"}},
       .groups = {kThreads, kResults},
       .run = tokenizer_train}};
}

}  // namespace mantissa::cli
