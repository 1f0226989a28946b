// Errors of requests, as the error object of OpenAI's API.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "mantissa/core/base/error.h"

namespace mantissa::serve {

/// A request that gets an error instead of an answer.
class RequestError : public Error {
 public:
  /// `param` is the field of the request that is wrong, or "".
  RequestError(int status, const std::string& message, std::string param = {}, std::string code = {});

  int status() const { return status_; }
  const std::string& param() const { return param_; }
  /// Returns {"error": {"message", "type", "param", "code"}}. `param` and `code` may be null.
  nlohmann::ordered_json to_json() const;

 private:
  int status_;
  std::string param_, code_;
};

/// Returns the name of a status: "Bad Request".
const char* reason_of(int status);

/// Returns the exception that is being handled as an error of a request: one of the user's errors has status
/// 400 if the request is wrong (ConfigError), and 500 otherwise.
RequestError current_request_error();

}  // namespace mantissa::serve
