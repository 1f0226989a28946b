// Exceptions for errors that a user can cause. Each message states what is wrong, where, and how to fix it.
// The library never prints or exits.
#pragma once

#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace mantissa {

template <class... Arguments>
class CheckedText;
/// A format string of fmt. error_text.h defines it, so that users of the library need not have fmt.
template <class... Arguments>
using ErrorText = CheckedText<std::type_identity_t<Arguments>...>;

/// A bug in the program, such as a lookup of an op that is not registered. Thrown in every build type.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
  /// The message is fmt::format(text, first, rest…). Requires error_text.h.
  template <class First, class... Rest>
  explicit InternalError(ErrorText<First, Rest...> text, First&& first, Rest&&... rest);
};

/// A remedy: arguments to add to the failed command. An option that may occur only once replaces the
/// command's own.
struct Cure {
  std::vector<std::string> arguments;  // {"--resume", "--rule", "lm_head: compute=f32"}
  std::string effect = {};             // the side effect, if it does not remove the cause
  bool tested = false;                 // it was tried: the next steps of the run completed with it
  /// Returns what to tell beside the arguments: "tested" or the effect, or "".
  std::string remark() const { return tested ? "tested" : effect; }
};

/// A problem that stops nothing.
struct Warning {
  std::string text;
  std::vector<Cure> cures = {};
  /// Returns the text, followed by the cures.
  std::string str() const;
};

/// Base class of every error that the user can correct. Its message is one printable line (printable.h).
class Error : public std::runtime_error {
 public:
  /// what() returns the message, followed by the cures.
  explicit Error(const std::string& message, std::vector<Cure> cures = {});
  /// The message is fmt::format(text, first, rest…). Requires error_text.h.
  template <class First, class... Rest>
  explicit Error(ErrorText<First, Rest...> text, First&& first, Rest&&... rest);
  /// Returns the message without the cures.
  const std::string& message() const { return message_; }
  const std::vector<Cure>& cures() const { return cures_; }

 private:
  std::string message_;
  std::vector<Cure> cures_;
};

/// A config, policy line, rule or command-line value is wrong.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A tensor does not have the expected shape.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A tensor does not have the expected number format.
class DtypeError : public Error {
 public:
  using Error::Error;
};

/// A file is missing, damaged, or of an unexpected kind.
class FileError : public Error {
 public:
  using Error::Error;
};

/// Memory, disk space or hardware that the request needs is unavailable.
class ResourceError : public Error {
 public:
  using Error::Error;
};

/// Another rank of a run ended or does not answer.
class RankLost : public ResourceError {
 public:
  using ResourceError::ResourceError;
};

/// A run or a computation stopped, for example at a non-finite value or at the minimum loss scale. The
/// message states the reason (exit code 1).
class RunStopped : public Error {
 public:
  using Error::Error;
};

/// A run stopped because another program failed. The same work may succeed when it is repeated.
class ProgramFailed : public RunStopped {
 public:
  using RunStopped::RunStopped;
};

}  // namespace mantissa
