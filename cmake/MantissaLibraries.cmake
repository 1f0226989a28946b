# The libraries that the library links and that have no CMake package everywhere, as imported targets mantissa::NAME. Both the
# build and the installed package include this file. It sets mantissa_missing to those that are not found, with their headers'
# package in Debian.
set(mantissa_missing "")
foreach(library hwy=libhwy-dev xxhash=libxxhash-dev z=zlib1g-dev zstd=libzstd-dev pcre2-8=libpcre2-dev
                utf8proc=libutf8proc-dev sentencepiece=libsentencepiece-dev)
  string(REPLACE "=" ";" library ${library})
  list(POP_BACK library package)
  find_library(MANTISSA_LIBRARY_${library} ${library})
  mark_as_advanced(MANTISSA_LIBRARY_${library})
  if(NOT MANTISSA_LIBRARY_${library})
    list(APPEND mantissa_missing "${library} (Debian: ${package})")
  elseif(NOT TARGET mantissa::${library})
    add_library(mantissa::${library} UNKNOWN IMPORTED GLOBAL)
    set_target_properties(mantissa::${library} PROPERTIES IMPORTED_LOCATION ${MANTISSA_LIBRARY_${library}})
  endif()
endforeach()
