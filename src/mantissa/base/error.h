// The errors a user can cause. Each says what is wrong, where, and how to mend it; nothing in the library
// prints or exits.
#pragma once

#include <stdexcept>
#include <string>

namespace mantissa {

/// A fault of the program itself, such as a look-up of an op that is not registered. Thrown in every build.
class InternalError : public std::logic_error {
 public:
  using std::logic_error::logic_error;
};

/// Base of every error that the user can correct.
class Error : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

/// A config, policy line, rule or command-line value is wrong.
class ConfigError : public Error {
 public:
  using Error::Error;
};

/// A tensor has not the shape that its use needs.
class ShapeError : public Error {
 public:
  using Error::Error;
};

/// A tensor has not the number format that its use needs.
class DtypeError : public Error {
 public:
  using Error::Error;
};

/// A file is missing, damaged, or not of the kind it should be.
class FileError : public Error {
 public:
  using Error::Error;
};

/// Memory, disk or hardware that the request needs is not there.
class ResourceError : public Error {
 public:
  using Error::Error;
};

/// The run itself stopped for a reason it states (exit code 1): the loss is not finite, the loss scale is at
/// its minimum.
class RunStopped : public Error {
 public:
  using Error::Error;
};

}  // namespace mantissa
