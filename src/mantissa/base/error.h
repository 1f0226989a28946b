// Exceptions for errors that a user can cause. Each message states what is wrong, where, and how to fix it.
// The library never prints or exits.
#pragma once

#include <stdexcept>
#include <string>
#include <vector>

namespace mantissa {

/// A bug in the program, such as a lookup of an op that is not registered. Thrown in every build type.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// A way to go on: arguments to add to those of the command that failed. An option that is given once takes
/// the place of the one that was there.
struct Cure {
  std::vector<std::string> arguments;  // {"--resume", "--rule", "lm_head: compute=f32"}
  std::string effect = {};             // what it does, where it does not mend the cause
};

/// What goes wrong without stopping anything.
struct Warning {
  std::string text;
  std::vector<Cure> cures = {};
  /// The text with the cures behind it.
  std::string str() const;
};

/// Base class of every error that the user can correct.
class Error : public std::runtime_error {
 public:
  /// what() returns the message with the cures behind it.
  explicit Error(const std::string& message, std::vector<Cure> cures = {});
  /// The message alone.
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

/// A run or a computation stopped for a reason that the message states (exit code 1): a value that is not
/// finite, a loss scale at its minimum.
class RunStopped : public Error {
 public:
  using Error::Error;
};

}  // namespace mantissa
