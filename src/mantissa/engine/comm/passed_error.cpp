#include "mantissa/engine/comm/passed_error.h"

#include <string>
#include <utility>
#include <vector>

#include "mantissa/core/base/error.h"

namespace mantissa::comm {
namespace {

enum class Kind : std::uint8_t { config, shape, dtype, file, resource, stopped, program };

Kind kind_of(const Error& error) {
  const auto is = [&]<class E>(const E*) { return dynamic_cast<const E*>(&error) != nullptr; };
  if (is(static_cast<const ProgramFailed*>(nullptr))) return Kind::program;
  if (is(static_cast<const RunStopped*>(nullptr))) return Kind::stopped;
  if (is(static_cast<const ResourceError*>(nullptr))) return Kind::resource;
  if (is(static_cast<const FileError*>(nullptr))) return Kind::file;
  if (is(static_cast<const DtypeError*>(nullptr))) return Kind::dtype;
  if (is(static_cast<const ShapeError*>(nullptr))) return Kind::shape;
  return Kind::config;
}

}  // namespace

Bytes bytes_of_error(const std::exception_ptr& error) {
  if (!error) return {};
  Bytes bytes;
  try {
    std::rethrow_exception(error);
  } catch (const RankLost&) {
    throw;
  } catch (const Error& e) {
    append(bytes, kind_of(e));
    append(bytes, e.message());
    append(bytes, e.cures().size());
    for (const Cure& cure : e.cures()) {
      append(bytes, cure.arguments);
      append(bytes, cure.effect);
      append(bytes, cure.tested);
    }
  }
  return bytes;
}

void throw_error(std::span<const std::byte> bytes) {
  if (bytes.empty()) return;
  const auto kind = take<Kind>(bytes);
  const auto message = take<std::string>(bytes);
  std::vector<Cure> cures(take<std::size_t>(bytes));
  for (Cure& cure : cures) {
    cure.arguments = take<std::vector<std::string>>(bytes);
    cure.effect = take<std::string>(bytes);
    cure.tested = take<bool>(bytes);
  }
  switch (kind) {
    case Kind::config:
      throw ConfigError(message, std::move(cures));
    case Kind::shape:
      throw ShapeError(message, std::move(cures));
    case Kind::dtype:
      throw DtypeError(message, std::move(cures));
    case Kind::file:
      throw FileError(message, std::move(cures));
    case Kind::resource:
      throw ResourceError(message, std::move(cures));
    case Kind::stopped:
      throw RunStopped(message, std::move(cures));
    case Kind::program:
      throw ProgramFailed(message, std::move(cures));
  }
}

}  // namespace mantissa::comm
