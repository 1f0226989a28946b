#include "mantissa/report/tensorboard.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <cstring>
#include <vector>

#include "mantissa/core/disk/look.h"

namespace mantissa::report {
namespace {

static_assert(std::endian::native == std::endian::little,
              "fixed-width fields are little-endian and written as they are");

constexpr std::array<std::uint32_t, 256> make_crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t remainder = i;
    for (int bit = 0; bit < 8; ++bit) remainder = remainder >> 1 ^ (remainder & 1 ? 0x82f63b78U : 0U);
    table[i] = remainder;
  }
  return table;
}

constexpr std::array<std::uint32_t, 256> kCrcTable = make_crc_table();

template <class T>
void put_fixed(std::string& out, T value) {
  std::array<char, sizeof(T)> bytes;
  std::memcpy(bytes.data(), &value, sizeof(T));
  out.append(bytes.data(), bytes.size());
}

// TFRecord stores CRCs rotated and shifted, because the CRC of data that contains CRCs is weak.
std::uint32_t masked(std::uint32_t crc) {
  return std::rotr(crc, 15) + 0xa282ead8U;
}

// Protobuf's wire format: a field consists of its number and wire type, then the value.
// https://protobuf.dev/programming-guides/encoding
enum class Wire : std::uint8_t { varint = 0, fixed64 = 1, bytes = 2, fixed32 = 5 };

void put_varint(std::string& out, std::uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}
void put_tag(std::string& out, std::uint32_t field, Wire wire) {
  put_varint(out, field << 3 | static_cast<std::uint32_t>(wire));
}
void put_integer(std::string& out, std::uint32_t field, std::int64_t value) {
  put_tag(out, field, Wire::varint);
  put_varint(out, static_cast<std::uint64_t>(value));
}
void put_bytes(std::string& out, std::uint32_t field, std::string_view bytes) {
  put_tag(out, field, Wire::bytes);
  put_varint(out, bytes.size());
  out += bytes;
}

// Field numbers of tensorflow's event.proto and summary.proto.
namespace event {
constexpr std::uint32_t kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kSessionLog = 7;
}
namespace summary {
constexpr std::uint32_t kValue = 1, kTag = 1, kSimpleValue = 2, kHistogram = 5;
}
namespace histogram {
constexpr std::uint32_t kMin = 1, kMax = 2, kCount = 3, kSum = 4, kSquares = 5, kLimits = 6, kCounts = 7;
}
namespace session_log {
constexpr std::uint32_t kStatus = 1;
constexpr std::int64_t kStart = 1;
}  // namespace session_log

void put_double(std::string& out, std::uint32_t field, double value) {
  put_tag(out, field, Wire::fixed64);
  put_fixed(out, value);
}
void put_doubles(std::string& out, std::uint32_t field, std::span<const double> values) {
  std::string packed;
  for (const double x : values) put_fixed(packed, x);
  put_bytes(out, field, packed);
}

/// The exponents of values that are not zero.
struct Exponents {
  int least = Binades::kMost + 1, most = Binades::kLeast - 1;
  explicit Exponents(const Binades& b) {
    for (int e = Binades::kLeast; e <= Binades::kMost; ++e) {
      if (b.at(e) == 0) continue;
      least = std::min(least, e);
      most = e;
    }
  }
  bool empty() const { return most < least; }
};

/// Returns a HistogramProto. A bucket reaches from the limit of the one before it to its own.
std::string histogram_of(const Distribution& d) {
  std::vector<double> limits, counts;
  const auto add = [&](double limit, std::uint64_t count) {
    limits.push_back(limit);
    counts.push_back(static_cast<double>(count));
  };
  const Exponents negative(d.negative), positive(d.positive);
  for (int e = negative.most; e >= negative.least; --e) add(-std::ldexp(1.0, e), d.negative.at(e));
  if (d.zeros > 0 || !negative.empty()) {
    const int least = !positive.empty()   ? positive.least
                      : !negative.empty() ? negative.least
                                          : Binades::kLeast;
    add(std::ldexp(1.0, least), d.zeros);
  }
  for (int e = positive.least; e <= positive.most; ++e) add(std::ldexp(1.0, e + 1), d.positive.at(e));
  std::string out;
  put_double(out, histogram::kMin, d.min);
  put_double(out, histogram::kMax, d.max);
  put_double(out, histogram::kCount, static_cast<double>(d.count));
  put_double(out, histogram::kSum, d.sum);
  put_double(out, histogram::kSquares, d.squares);
  put_doubles(out, histogram::kLimits, limits);
  put_doubles(out, histogram::kCounts, counts);
  return out;
}

std::string begin_event(double wall_time, std::int64_t step) {
  std::string out;
  put_tag(out, event::kWallTime, Wire::fixed64);
  put_fixed(out, wall_time);
  put_integer(out, event::kStep, step);
  return out;
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

constexpr std::string_view kEvents = "events.out.tfevents.";

}  // namespace

// TensorBoard reads the files of a directory in the order of their names, which must be the order of time.
std::string new_event_file(const std::filesystem::path& directory) {
  std::array<char, 256> host{};
  if (::gethostname(host.data(), host.size() - 1) != 0 || host[0] == '\0')
    std::strcpy(host.data(), "localhost");
  const std::string stem = fmt::format("{}{:010}.{}", kEvents, static_cast<std::int64_t>(now()), host.data());
  for (int number = 0;; ++number) {
    std::string name = fmt::format("{}.{}", stem, number);
    if (!disk::has_name(directory / name)) return name;
  }
}

bool is_event_file(std::string_view name) {
  return name.starts_with(kEvents);
}

std::uint32_t crc32c(std::string_view bytes) {
  std::uint32_t crc = ~0U;
  for (const char c : bytes) crc = crc >> 8 ^ kCrcTable[(crc ^ static_cast<unsigned char>(c)) & 0xff];
  return ~crc;
}

std::string tf_record(std::string_view payload) {
  std::string out;
  put_fixed(out, static_cast<std::uint64_t>(payload.size()));
  put_fixed(out, masked(crc32c(out)));
  out += payload;
  put_fixed(out, masked(crc32c(payload)));
  return out;
}

std::string scalar_event(double wall_time, std::int64_t step,
                         std::span<const std::pair<std::string_view, double>> scalars) {
  std::string values;
  for (const auto& [tag, number] : scalars) {
    std::string value;
    put_bytes(value, summary::kTag, tag);
    put_tag(value, summary::kSimpleValue, Wire::fixed32);
    put_fixed(value, static_cast<float>(number));
    put_bytes(values, summary::kValue, value);
  }
  std::string out = begin_event(wall_time, step);
  put_bytes(out, event::kSummary, values);
  return out;
}

std::string histogram_event(double wall_time, std::int64_t step,
                            std::span<const TaggedDistribution> histograms) {
  std::string values;
  for (const auto& [tag, distribution] : histograms) {
    std::string value;
    put_bytes(value, summary::kTag, tag);
    put_bytes(value, summary::kHistogram, histogram_of(*distribution));
    put_bytes(values, summary::kValue, value);
  }
  std::string out = begin_event(wall_time, step);
  put_bytes(out, event::kSummary, values);
  return out;
}

TensorBoardWriter::TensorBoardWriter(const std::filesystem::path& directory, std::int64_t resumed_step,
                                     const std::string& name)
    : file_(directory / (name.empty() ? new_event_file(directory) : name),
            disk::AppendFile::Open::must_be_new) {
  std::string version = begin_event(now(), 0);
  put_bytes(version, event::kFileVersion, "brain.Event:2");
  std::string log, start = begin_event(now(), resumed_step + 1);
  put_integer(log, session_log::kStatus, session_log::kStart);
  put_bytes(start, event::kSessionLog, log);
  file_.write(tf_record(version) + tf_record(start));
}

void TensorBoardWriter::write(const StepMetrics& m, std::span<const std::pair<std::string, double>> health) {
  std::vector<std::pair<std::string_view, double>> scalars = {
      {"loss", m.loss}, {"grad_norm", m.grad_norm}, {"lr", m.lr}, {"tokens_per_second", m.tokens_per_second}};
  if (m.loss_scale) scalars.emplace_back("loss_scale", *m.loss_scale);
  for (const auto& [name, value] : m.more) scalars.emplace_back(name, value);
  for (const auto& [tag, value] : health) scalars.emplace_back(tag, value);
  file_.write(tf_record(scalar_event(now(), m.step, scalars)));
}

void TensorBoardWriter::write_histograms(std::int64_t step, std::span<const TaggedDistribution> histograms) {
  if (!histograms.empty()) file_.write(tf_record(histogram_event(now(), step, histograms)));
}

void TensorBoardWriter::write_scalar(std::int64_t step, std::string_view name, double value) {
  const std::pair<std::string_view, double> scalar{name, value};
  file_.write(tf_record(scalar_event(now(), step, std::span(&scalar, 1))));
}

}  // namespace mantissa::report
