#include "mantissa/app/api/chat.h"

#include <fmt/format.h>

#include <cstdint>
#include <nlohmann/json.hpp>

#include "mantissa/app/api/internal.h"
#include "mantissa/core/base/error.h"
#include "mantissa/core/disk/atomic.h"
#include "mantissa/core/disk/file.h"
#include "mantissa/core/disk/look.h"
#include "mantissa/generate/dialog/conversation.h"

namespace mantissa::api {

namespace {

dialog::Settings settings_of(const ChatOptions& o) {
  return {o.chat_template,
          o.system,
          o.max_new_tokens,
          {o.temperature, o.top_k, o.top_p, o.min_p, o.repetition_penalty, o.seed},
          o.stop};
}

/// Says in a saved chat what wrote it, so that the program replaces no row of somebody else.
constexpr const char *kWriter = "saved_by", *kProgram = "mantissa chat";

/// Returns true for an empty file, and for what save() wrote.
bool is_saved_chat(const std::filesystem::path& path) {
  constexpr std::uint64_t kLongest = std::uint64_t{1} << 28;
  const std::uint64_t size = disk::File::open_to_read(path).size();
  if (size == 0 || size > kLongest) return size == 0;
  const nlohmann::json row = nlohmann::json::parse(disk::read_text_file(path, kLongest), nullptr, false);
  return row.is_object() && row.value(kWriter, nlohmann::json()) == kProgram;
}

}  // namespace

struct Chat::Impl {
  Impl(const weights::ModelSource& source, const ChatOptions& o)
      : device(device_for(o.hardware)),
        conversation(source, policy_for(o.precision, source), settings_of(o), *device) {}

  std::shared_ptr<const runtime::Device> device;
  dialog::Conversation conversation;
};

Chat::Chat(const Model& model, const ChatOptions& options)
    : impl_(std::make_unique<Impl>(source_of(model), options)) {}

Chat::~Chat() = default;
Chat::Chat(Chat&&) noexcept = default;
Chat& Chat::operator=(Chat&&) noexcept = default;

ChatAnswer Chat::ask(const std::string& text, const std::function<void(std::string_view)>& on_text,
                     std::stop_token stop) {
  dialog::Answer a = impl_->conversation.ask(text, on_text, std::move(stop));
  return {std::move(a.text), std::move(a.ids), std::move(a.log_probs),  a.prompt_tokens,
          a.kept_tokens,     a.seconds,        std::string(name(a.end))};
}

std::string Chat::prompt_of(const std::string& text) const {
  return impl_->conversation.prompt_of(text);
}

void Chat::reset() {
  impl_->conversation.reset();
}

void Chat::set_system(const std::string& text) {
  impl_->conversation.set_system(text);
}

std::vector<ChatMessage> Chat::messages() const {
  std::vector<ChatMessage> all;
  for (const dialog::Message& m : impl_->conversation.messages()) all.push_back({m.role, m.content});
  return all;
}

void Chat::save(const std::filesystem::path& file) const {
  if (disk::is_file(file) && !is_saved_chat(file)) {
    throw FileError(
        fmt::format("{}: exists already, and is not a saved chat; choose another name", file.string()));
  }
  const nlohmann::ordered_json row = {{"messages", dialog::to_json(impl_->conversation.messages())},
                                      {kWriter, kProgram}};
  disk::write_file_atomic(disk::given(file, true),
                          row.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace) + "\n");
}

bool Chat::save_state(const std::filesystem::path& file) {
  return impl_->conversation.save_states(file);
}

void Chat::check_place(const std::filesystem::path& file) const {
  impl_->conversation.check_place(file);
}

void Chat::load_state(const std::filesystem::path& file) {
  impl_->conversation.load_states(file);
}

const std::string& Chat::template_name() const {
  return impl_->conversation.format().template_name();
}

}  // namespace mantissa::api
