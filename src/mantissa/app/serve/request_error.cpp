#include "mantissa/app/serve/request_error.h"

#include <exception>
#include <new>
#include <utility>

namespace mantissa::serve {
namespace {

const char* type_of(int status) {
  switch (status) {
    case 401:
      return "authentication_error";
    case 429:
      return "rate_limit_error";
    default:
      return status < 500 ? "invalid_request_error" : "server_error";
  }
}

}  // namespace

RequestError::RequestError(int status, const std::string& message, std::string param, std::string code)
    : Error(message), status_(status), param_(std::move(param)), code_(std::move(code)) {}

nlohmann::ordered_json RequestError::to_json() const {
  nlohmann::ordered_json error = {
      {"message", message()}, {"type", type_of(status_)}, {"param", nullptr}, {"code", nullptr}};
  if (!param_.empty()) error["param"] = param_;
  if (!code_.empty()) error["code"] = code_;
  return {{"error", std::move(error)}};
}

const char* reason_of(int status) {
  switch (status) {
    case 400:
      return "Bad Request";
    case 401:
      return "Unauthorized";
    case 403:
      return "Forbidden";
    case 404:
      return "Not Found";
    case 405:
      return "Method Not Allowed";
    case 408:
      return "Request Timeout";
    case 413:
      return "Payload Too Large";
    case 414:
      return "URI Too Long";
    case 415:
      return "Unsupported Media Type";
    case 429:
      return "Too Many Requests";
    case 503:
      return "Service Unavailable";
    default:
      return status < 500 ? "Bad Request" : "Internal Server Error";
  }
}

RequestError current_request_error() {
  try {
    throw;
  } catch (const RequestError& error) {
    return error;
  } catch (const ConfigError& error) {
    return {400, error.what()};
  } catch (const Error& error) {
    return {500, error.what()};
  } catch (const std::bad_alloc&) {
    return {503, "the server has too little memory for this request. Fix: a shorter request, or try again",
            "", "out_of_memory"};
  } catch (const std::exception& error) {
    return {500, std::string(error.what()) + " (this is a bug in the program: please report it)"};
  }
}

}  // namespace mantissa::serve
