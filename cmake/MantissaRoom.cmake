# For code whose time of running does not count, but that of compiling does: -O1 takes a quarter less of it than -O3. Under
# the sanitizers -O0 takes a third less than -O1; BULK: code that computes in bulk, which -O0 would make too slow. Arithmetic of
# pointers is checked in the code of other rooms.
function(mantissa_compile_quickly target)
  cmake_parse_arguments(ARG "BULK" "" "" ${ARGN})
  target_compile_options(${target} PRIVATE $<$<CONFIG:Release>:-O1>)
  if(MANTISSA_SANITIZE AND NOT MANTISSA_FUZZ AND NOT ARG_BULK)
    target_compile_options(${target} PRIVATE -O0 -fno-sanitize=pointer-overflow,alignment)
  endif()
endfunction()

# Headers that many files include are parsed once for all targets of a group, which are compiled alike: QUICK, BULK (quickly,
# but for code that computes in bulk) or neither, PROGRAMS or libraries.
function(mantissa_header_group name)
  cmake_parse_arguments(ARG "QUICK;BULK;PROGRAMS" "" "HEADERS;LINKS" ${ARGN})
  set(source ${PROJECT_BINARY_DIR}/headers_${name}.cpp)  # a target needs one
  file(CONFIGURE OUTPUT ${source} CONTENT "int main() {}\n")
  if(ARG_PROGRAMS)
    add_executable(mantissa_headers_${name} ${source})
  else()
    add_library(mantissa_headers_${name} OBJECT ${source})
  endif()
  if(ARG_BULK)
    mantissa_compile_quickly(mantissa_headers_${name} BULK)
  elseif(ARG_QUICK)
    mantissa_compile_quickly(mantissa_headers_${name})
  endif()
  target_link_libraries(mantissa_headers_${name} PRIVATE mantissa_options fmt::fmt ${ARG_LINKS})
  target_compile_options(mantissa_headers_${name} PRIVATE ${MANTISSA_PCH_OPTIONS})
  target_precompile_headers(mantissa_headers_${name} PRIVATE ${ARG_HEADERS})
endfunction()

set(MANTISSA_PCH_OPTIONS $<$<CXX_COMPILER_ID:GNU>:-fpch-preprocess>)  # what ccache needs

function(mantissa_precompile target group)
  target_compile_options(${target} PRIVATE ${MANTISSA_PCH_OPTIONS})
  target_precompile_headers(${target} REUSE_FROM mantissa_headers_${group})
endfunction()

# Several files of a target are compiled as one: a header is parsed once for all of them, which halves the time of a build.
# Names in their unnamed namespaces must differ.
option(MANTISSA_UNITY "Compile files together; OFF for clang-tidy and for quick rebuilds of one file" ON)
function(mantissa_compile_together target)
  if(MANTISSA_UNITY)
    set_target_properties(${target} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 32)
  endif()
endfunction()

# A wing is a folder of src/mantissa with rooms. `about` is its line in docs/architecture.md.
function(mantissa_wing name about)
endfunction()

# A room is one folder of a wing, or a wing without others: one static library, called mantissa_<room>, that links only the rooms
# it may use. ABOUT: its line in docs/architecture.md. QUICK: it reads, decides and prints, and computes nothing in bulk. INNER:
# what it gets was checked by other rooms; MANTISSA_INNER_FROM replaces it by that of another build. APART: its files use the
# same local names, so each is compiled alone. APART_IN: the same for the files of a subfolder. ALONE: the same for these files.
# VECTORS: its files with vector code are compiled for several instruction sets.
function(mantissa_room path)
  cmake_parse_arguments(ARG "QUICK;INNER;APART;VECTORS" "APART_IN;ABOUT" "USES;LINKS;ALONE" ${ARGN})
  cmake_path(GET path FILENAME name)
  file(GLOB_RECURSE sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/mantissa/${path}/*.cpp)
  list(REMOVE_ITEM sources ${PROJECT_SOURCE_DIR}/src/mantissa/app/cli/main.cpp
       ${PROJECT_SOURCE_DIR}/src/mantissa/engine/comm/mpi/library.cpp)  # a library for each MPI (MantissaMpi.cmake)
  if(ARG_INNER)
    set_property(GLOBAL APPEND PROPERTY MANTISSA_INNER_ROOMS mantissa_${name})
  endif()
  if(ARG_INNER AND MANTISSA_INNER_FROM)
    set(archive ${MANTISSA_INNER_FROM}/libmantissa_${name}.a)
    if(NOT EXISTS ${archive})
      message(FATAL_ERROR "MANTISSA_INNER_FROM: expected ${archive}, which does not exist. "
                          "Fix: ./dev build --target mantissa_${name}")
    endif()
    add_library(mantissa_${name} STATIC IMPORTED GLOBAL)
    set_target_properties(mantissa_${name} PROPERTIES IMPORTED_LOCATION ${archive})
    set(scope INTERFACE)
  elseif(sources)
    add_library(mantissa_${name} STATIC ${sources})
    set(scope PUBLIC)
    set_property(GLOBAL APPEND PROPERTY MANTISSA_ROOMS mantissa_${name})
    if(NOT ARG_APART)
      mantissa_compile_together(mantissa_${name})
    endif()
    list(TRANSFORM ARG_ALONE PREPEND ${PROJECT_SOURCE_DIR}/src/mantissa/${path}/)
    set_source_files_properties(${ARG_ALONE} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    if(ARG_APART_IN)
      set(alone ${sources})
      list(FILTER alone INCLUDE REGEX "/${ARG_APART_IN}/")
      set_source_files_properties(${alone} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    endif()
    if(ARG_VECTORS)
      mantissa_vectors(mantissa_${name} "${sources}" "${ARG_ALONE}")
    endif()
    if(ARG_QUICK)
      mantissa_compile_quickly(mantissa_${name})
      mantissa_precompile(mantissa_${name} quick_rooms)
    else()
      mantissa_precompile(mantissa_${name} rooms)
    endif()
  else()
    add_library(mantissa_${name} INTERFACE)
    set(scope INTERFACE)
  endif()
  list(TRANSFORM ARG_USES PREPEND mantissa_)
  target_link_libraries(mantissa_${name} ${scope} mantissa_options ${ARG_USES} fmt::fmt ${ARG_LINKS})
endfunction()
