# A shared library for each implementation of MPI that is installed (Debian has both side by side). The program loads one of
# them under its launcher, and none otherwise, so it links no MPI itself.
find_package(PkgConfig QUIET)

function(mantissa_mpi name package)
  if(NOT PKG_CONFIG_FOUND)
    return()
  endif()
  pkg_check_modules(MANTISSA_MPI_${name} QUIET IMPORTED_TARGET ${package})
  if(NOT MANTISSA_MPI_${name}_FOUND)
    message(STATUS "without ${name}: pkg-config does not find ${package}")
    return()
  endif()
  add_library(mantissa_mpi_${name} MODULE src/mantissa/engine/comm/mpi/library.cpp)
  target_link_libraries(mantissa_mpi_${name} PRIVATE PkgConfig::MANTISSA_MPI_${name})
  target_include_directories(mantissa_mpi_${name} PRIVATE src)
  target_compile_options(mantissa_mpi_${name} PRIVATE -Wall -Wextra)
  # The headers of Open MPI declare the C++ bindings of MPI 2 unless told otherwise, and MPICH's likewise.
  target_compile_definitions(mantissa_mpi_${name} PRIVATE OMPI_SKIP_MPICXX MPICH_SKIP_MPICXX)
  add_dependencies(mantissa_program mantissa_mpi_${name})
  install(TARGETS mantissa_mpi_${name} LIBRARY DESTINATION lib/mantissa COMPONENT program)
endfunction()

mantissa_mpi(openmpi ompi-c)
mantissa_mpi(mpich mpich)
