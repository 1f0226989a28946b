// The built-in templates. Each is written for one format, which docs/chat.md describes.
#include "mantissa/text/chat/templates.h"

#include "mantissa/core/base/words.h"

namespace mantissa::chat {

namespace {

constexpr std::string_view kChatml = R"({%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{- message['content'] + '<|im_end|>' }}{%- endgeneration %}
    {%- else %}
        {{- message['content'] + '<|im_end|>' }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})";

constexpr std::string_view kQwen = R"({%- if not messages or messages[0]['role'] != 'system' %}
    {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
{%- endif %}
{%- for message in messages %}
    {{- '<|im_start|>' + message['role'] + '\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{- message['content'] + '<|im_end|>' }}{%- endgeneration %}
    {%- else %}
        {{- message['content'] + '<|im_end|>' }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %})";

constexpr std::string_view kLlama3 = R"({%- for message in messages %}
    {%- if loop.first %}
        {{- bos_token }}
    {%- endif %}
    {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n' }}
    {%- if message['role'] == 'assistant' %}
        {%- generation %}{{- message['content'] | trim + '<|eot_id|>' }}{%- endgeneration %}
    {%- else %}
        {{- message['content'] | trim + '<|eot_id|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %})";

constexpr std::string_view kMistral = R"({%- set turns = messages %}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content'] %}
    {%- set turns = messages[1:] %}
{%- endif %}
{%- for message in turns %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('After the optional system message, conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
{%- endfor %}
{{- bos_token }}
{%- for message in turns %}
    {%- if message['role'] == 'user' %}
        {{- '[INST] ' }}
        {%- if loop.last and system_message is defined %}
            {{- system_message + '\n\n' }}
        {%- endif %}
        {{- message['content'] + '[/INST]' }}
    {%- elif message['role'] == 'assistant' %}
        {%- generation %}{{- ' ' + message['content'] | trim + eos_token }}{%- endgeneration %}
    {%- else %}
        {{- raise_exception('Only user and assistant roles are supported, with the exception of an initial optional system message!') }}
    {%- endif %}
{%- endfor %})";

constexpr std::string_view kGemma = R"({{- bos_token }}
{%- set turns = messages %}
{%- set prefix = '' %}
{%- if messages and messages[0]['role'] == 'system' %}
    {%- set prefix = messages[0]['content'] + '\n\n' %}
    {%- set turns = messages[1:] %}
{%- endif %}
{%- for message in turns %}
    {%- if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}
        {{- raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}
    {%- endif %}
    {%- if message['role'] == 'assistant' %}
        {{- '<start_of_turn>model\n' }}
        {%- generation %}{{- message['content'] | trim + '<end_of_turn>' }}{%- endgeneration %}
    {%- else %}
        {{- '<start_of_turn>' + message['role'] + '\n' + (prefix if loop.first else '') + message['content'] | trim + '<end_of_turn>' }}
    {%- endif %}
    {{- '\n' }}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<start_of_turn>model\n' }}
{%- endif %})";

constexpr std::pair<std::string_view, std::string_view> kBuiltin[] = {
    {"chatml", kChatml}, {"llama3", kLlama3}, {"qwen", kQwen}, {"mistral", kMistral}, {"gemma", kGemma}};

}  // namespace

std::vector<std::string> builtin_template_names() {
  return names_of(kBuiltin, [](const auto& builtin) { return builtin.first; });
}

std::optional<std::string_view> builtin_template(std::string_view name) {
  for (const auto& [known, source] : kBuiltin) {
    if (known == name) return source;
  }
  return std::nullopt;
}

}  // namespace mantissa::chat
