// Mutants of compressed lines of JSON: their text changes, and is compressed again, sometimes in several
// parts.
#include <zlib.h>
#include <zstd.h>

#include "mutate.h"

namespace mantissa::fuzz {
namespace {

constexpr std::size_t kMost = 1 << 16;  // bytes of the text
constexpr int kGzip = 16 + MAX_WBITS;

std::optional<std::string> gunzip(std::string_view input) {
  z_stream stream{};
  if (inflateInit2(&stream, kGzip) != Z_OK) return std::nullopt;
  std::string text(kMost, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(input.data()));
  stream.avail_in = static_cast<uInt>(input.size());
  stream.next_out = reinterpret_cast<Bytef*>(text.data());
  stream.avail_out = kMost;
  const int result = inflate(&stream, Z_FINISH);
  text.resize(kMost - stream.avail_out);
  inflateEnd(&stream);
  return result == Z_STREAM_END ? std::optional(text) : std::nullopt;
}

std::string gzip(std::string_view text, Random& random) {
  z_stream stream{};
  if (deflateInit2(&stream, static_cast<int>(random.below(10)), Z_DEFLATED, kGzip, 8,
                   static_cast<int>(random.below(5))) != Z_OK)
    return {};
  std::string out(deflateBound(&stream, text.size()) + 32, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  deflate(&stream, Z_FINISH);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::optional<std::string> unzstd(std::string_view input) {
  std::string text(kMost, '\0');
  const std::size_t size = ZSTD_decompress(text.data(), text.size(), input.data(), input.size());
  if (ZSTD_isError(size) != 0) return std::nullopt;
  text.resize(size);
  return text;
}

std::string zstd(std::string_view text, Random& random) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_compressionLevel, static_cast<int>(random.below(20)));
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, static_cast<int>(random.below(2)));
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, static_cast<int>(random.below(2)));
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress2(context, out.data(), out.size(), text.data(), text.size()));
  ZSTD_freeCCtx(context);
  return out;
}

}  // namespace

std::optional<std::string> mutate_stream(std::string_view input, Random& random) {
  const bool is_gzip = input.starts_with("\x1f\x8b");
  auto text = is_gzip ? gunzip(input) : unzstd(input);
  if (!text) return std::nullopt;
  const auto lines = random.one_in(2) ? mutate_json_lines(*text, random) : std::nullopt;
  const std::string changed = lines ? *lines : mutate_bytes(*text, text->size() + 64);
  const auto packed = [&](std::string_view part) {
    return is_gzip ? gzip(part, random) : zstd(part, random);
  };
  if (!random.one_in(4)) return packed(changed);
  const std::size_t middle = random.below(changed.size());
  return packed(std::string_view(changed).substr(0, middle)) +
         packed(std::string_view(changed).substr(middle));
}

}  // namespace mantissa::fuzz
