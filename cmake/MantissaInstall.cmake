# What `cmake --install` writes: the component `program` (the program, its manual page and its completions) and the component
# `library` (the library, its headers and its CMake package). Installing first builds its component, because documented builds
# build less than all.

function(mantissa_build_before_install target component)
  install(CODE "
    execute_process(COMMAND \"${CMAKE_COMMAND}\" --build \"${PROJECT_BINARY_DIR}\" --target ${target}
                    RESULT_VARIABLE result OUTPUT_VARIABLE output ERROR_VARIABLE output)
    if(NOT result EQUAL 0)
      message(FATAL_ERROR \"${target} cannot be built, so it is not installed:\\n\${output}\")
    endif()" COMPONENT ${component})
endfunction()

# Every room but the command line and the server in one library, and the public headers of app/api. They are included as mantissa/api/x.h and
# mantissa/base/error.h, which headers of these names forward to their places in the house.
function(mantissa_forwarding_headers)
  set(folder ${PROJECT_BINARY_DIR}/include/mantissa)
  file(GLOB headers CONFIGURE_DEPENDS RELATIVE ${PROJECT_SOURCE_DIR}/src/mantissa/app ${PROJECT_SOURCE_DIR}/src/mantissa/app/api/*.h)
  list(REMOVE_ITEM headers api/internal.h)
  foreach(header ${headers})
    file(CONFIGURE OUTPUT ${folder}/${header} CONTENT "#include \"mantissa/app/${header}\"  // IWYU pragma: export\n")
  endforeach()
  file(CONFIGURE OUTPUT ${folder}/base/error.h CONTENT "#include \"mantissa/core/base/error.h\"  // IWYU pragma: export\n")
  install(DIRECTORY ${folder}/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mantissa COMPONENT library FILES_MATCHING PATTERN "*.h")
endfunction()

function(mantissa_library)
  get_property(rooms GLOBAL PROPERTY MANTISSA_ROOMS)
  set(objects "")
  foreach(room ${rooms})
    list(APPEND objects $<TARGET_OBJECTS:${room}>)
  endforeach()
  if(NOT objects)
    return()
  endif()
  set(libraries Threads::Threads fmt::fmt mantissa::hwy mantissa::xxhash mantissa::z mantissa::zstd
      mantissa::pcre2-8 mantissa::utf8proc mantissa::sentencepiece)
  if(MANTISSA_SHARED)
    add_library(mantissa SHARED ${objects})
    target_link_libraries(mantissa PRIVATE ${libraries})
    set_target_properties(mantissa PROPERTIES VERSION ${PROJECT_VERSION}
                                              SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  else()
    add_library(mantissa STATIC ${objects})
    target_link_libraries(mantissa PUBLIC ${libraries})
  endif()
  add_library(mantissa::mantissa ALIAS mantissa)
  mantissa_forwarding_headers()
  target_include_directories(mantissa PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/src>
                                             $<BUILD_INTERFACE:${PROJECT_BINARY_DIR}/include>
                                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_compile_features(mantissa PUBLIC cxx_std_20)
  set_target_properties(mantissa PROPERTIES LINKER_LANGUAGE CXX)

  set(package ${CMAKE_INSTALL_LIBDIR}/cmake/mantissa)
  add_custom_target(mantissa_library)  # by this name: for Ninja, "mantissa" is the program's file
  add_dependencies(mantissa_library mantissa)
  mantissa_build_before_install(mantissa_library library)
  install(TARGETS mantissa EXPORT mantissa COMPONENT library
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT mantissa COMPONENT library NAMESPACE mantissa:: DESTINATION ${package} FILE mantissa-targets.cmake)
  include(CMakePackageConfigHelpers)
  configure_file(${PROJECT_SOURCE_DIR}/cmake/mantissa-config.cmake.in ${PROJECT_BINARY_DIR}/mantissa-config.cmake @ONLY)
  write_basic_package_version_file(${PROJECT_BINARY_DIR}/mantissa-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${PROJECT_BINARY_DIR}/mantissa-config.cmake ${PROJECT_BINARY_DIR}/mantissa-config-version.cmake
                ${PROJECT_SOURCE_DIR}/cmake/MantissaLibraries.cmake
          DESTINATION ${package} COMPONENT library)
  install(DIRECTORY ${PROJECT_SOURCE_DIR}/src/mantissa/app/api/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mantissa/app/api
          COMPONENT library FILES_MATCHING PATTERN "*.h" PATTERN "internal.h" EXCLUDE)
  install(FILES ${PROJECT_SOURCE_DIR}/src/mantissa/core/base/error.h DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}/mantissa/core/base
          COMPONENT library)
endfunction()

# A file that the program prints, called `name` in the folder `destination`.
function(mantissa_install_printed destination name)
  set(printed ${PROJECT_BINARY_DIR}/printed/${name})
  list(JOIN ARGN " " command)
  install(CODE "
    file(MAKE_DIRECTORY \"${PROJECT_BINARY_DIR}/printed\")
    execute_process(COMMAND \"$<TARGET_FILE:mantissa_program>\" ${command} OUTPUT_FILE \"${printed}\" RESULT_VARIABLE result)
    if(NOT result EQUAL 0)
      message(FATAL_ERROR \"mantissa ${command}: \${result}\")
    endif()" COMPONENT program)
  install(FILES ${printed} DESTINATION ${destination} COMPONENT program)
endfunction()

function(mantissa_install_program)
  mantissa_build_before_install(mantissa_program program)
  install(TARGETS mantissa_program RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT program)
  if(CMAKE_CROSSCOMPILING)  # the program cannot run here
    return()
  endif()
  mantissa_install_printed(${CMAKE_INSTALL_MANDIR}/man1 mantissa.1 manual)
  mantissa_install_printed(${CMAKE_INSTALL_DATADIR}/bash-completion/completions mantissa completion bash)
  mantissa_install_printed(${CMAKE_INSTALL_DATADIR}/zsh/site-functions _mantissa completion zsh)
  mantissa_install_printed(${CMAKE_INSTALL_DATADIR}/fish/vendor_completions.d mantissa.fish completion fish)
endfunction()
