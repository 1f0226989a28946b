// Exceptions for errors that a user can cause. Each message states what is wrong, where, and how to fix it.
// The library never prints or exits.
#pragma once

#include <stdexcept>
#include <string>

namespace mantissa {

/// A bug in the program, such as a lookup of an op that is not registered. Thrown in every build type.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Base class of every error that the user can correct.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
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

/// The run stopped for a reason stated in the message (exit code 1): a loss that is not finite, a loss scale
/// at its minimum.
class RunStopped : public Error {
 public:
  using Error::Error;
};

}  // namespace mantissa
