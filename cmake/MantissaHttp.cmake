# cpp-httplib, which only the program links, as mantissa::httplib. pkg-config knows the definitions with which its library was
# compiled: they change the layout of its classes.
find_package(PkgConfig REQUIRED)
pkg_check_modules(MANTISSA_HTTPLIB IMPORTED_TARGET GLOBAL cpp-httplib>=0.11 cpp-httplib<0.12)
if(NOT MANTISSA_HTTPLIB_FOUND)
  message(FATAL_ERROR "cpp-httplib 0.11 is not found (Debian: libcpp-httplib-dev). Fix: ./dev setup")
endif()
add_library(mantissa::httplib ALIAS PkgConfig::MANTISSA_HTTPLIB)
