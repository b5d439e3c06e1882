# Installation in two components: `programs`, which the packages hold, and `library`, for other projects.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

if(WIN32)  # one folder, which its README describes
  set(CMAKE_INSTALL_BINDIR .)
  install(FILES cmake/windows/README.txt DESTINATION . COMPONENT programs)
  install(FILES cmake/windows/NOTICES.txt DESTINATION . COMPONENT programs)
  install(FILES LICENSE DESTINATION . COMPONENT programs RENAME LICENSE.txt)
  install(FILES LICENSE README.md SPEED.md CHANGELOG.md CONTRIBUTING.md DESTINATION docs COMPONENT programs)
  install(DIRECTORY docs DESTINATION docs COMPONENT programs)
  install(FILES tests/llmc_defects.md DESTINATION docs/tests COMPONENT programs)  # README.md refers to it
else()
  install(FILES LICENSE README.md CHANGELOG.md DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT programs)
endif()

# Programs get names that do not collide with others: `eval` is a shell builtin.
foreach(program train_gpt2=train generate=generate eval=eval prepare_data=prepare-data
    make_corpus=make-corpus)
  string(REPLACE "=" ";" program ${program})
  list(GET program 0 target)
  list(GET program 1 name)
  install(PROGRAMS $<TARGET_FILE:${target}> DESTINATION ${CMAKE_INSTALL_BINDIR}
    RENAME vulkan-gpt2-${name}${CMAKE_EXECUTABLE_SUFFIX} COMPONENT programs)
endforeach()

# The library: find_package(vulkan_gpt2) defines vulkan_gpt2::llmc, as add_subdirectory() does.
set(HEADERS ${CMAKE_INSTALL_INCLUDEDIR}/vulkan_gpt2)
set(CONFIG ${CMAKE_INSTALL_LIBDIR}/cmake/vulkan_gpt2)
add_library(vulkan_gpt2::llmc ALIAS llmc)
target_include_directories(llmc PUBLIC $<INSTALL_INTERFACE:${HEADERS}>)
target_compile_features(llmc PUBLIC cxx_std_20)
if(NOT WIN32)  # cross-built libraries are in the source folder, which CMake exports to nobody
  install(TARGETS llmc llmc_settings EXPORT vulkan_gpt2-targets DESTINATION ${CMAKE_INSTALL_LIBDIR}
    COMPONENT library)
  install(DIRECTORY llmc shaders DESTINATION ${HEADERS} COMPONENT library FILES_MATCHING PATTERN *.h
    PATTERN cooperative_matrix EXCLUDE)
  if(WITHOUT_OPENMP)
    install(FILES ${WITHOUT_OPENMP}/omp.h DESTINATION ${HEADERS} COMPONENT library)
  endif()
  install(EXPORT vulkan_gpt2-targets NAMESPACE vulkan_gpt2:: DESTINATION ${CONFIG} COMPONENT library)
  configure_file(cmake/vulkan_gpt2-config.cmake.in vulkan_gpt2-config.cmake @ONLY)
  write_basic_package_version_file(vulkan_gpt2-config-version.cmake COMPATIBILITY SameMinorVersion)
  install(FILES ${CMAKE_CURRENT_BINARY_DIR}/vulkan_gpt2-config.cmake
    ${CMAKE_CURRENT_BINARY_DIR}/vulkan_gpt2-config-version.cmake DESTINATION ${CONFIG} COMPONENT library)
endif()

# --- packages of the programs: `make package` ---
if(NOT PROJECT_IS_TOP_LEVEL)
  return()
endif()
set(CPACK_GENERATOR DEB TGZ)
if(WIN32)
  set(CPACK_GENERATOR ZIP)
endif()
set(CPACK_PACKAGE_NAME vulkan-gpt2)
set(CPACK_PACKAGE_VENDOR "the authors of vulkan_gpt2")
# Whoever builds a package answers for it: Debian's variables, else git's user.
set(PACKAGE_CONTACT "" CACHE STRING "who answers for the packages: Name <address>")
set(CPACK_PACKAGE_CONTACT "${PACKAGE_CONTACT}")
if(NOT CPACK_PACKAGE_CONTACT)
  set(contact_name "$ENV{DEBFULLNAME}")
  set(contact_address "$ENV{DEBEMAIL}")
  find_package(Git QUIET)
  foreach(part name email)
    set(found_${part})
    if(GIT_FOUND)
      execute_process(COMMAND ${GIT_EXECUTABLE} config user.${part} WORKING_DIRECTORY ${PROJECT_SOURCE_DIR}
        OUTPUT_VARIABLE found_${part} OUTPUT_STRIP_TRAILING_WHITESPACE ERROR_QUIET)
    endif()
  endforeach()
  if(NOT contact_address)
    set(contact_name "${found_name}")
    set(contact_address "${found_email}")
  endif()
  if(NOT contact_name)
    set(contact_name "local build")
  endif()
  if(NOT contact_address)
    cmake_host_system_information(RESULT host QUERY HOSTNAME)
    set(contact_address "root@${host}")
  endif()
  set(CPACK_PACKAGE_CONTACT "${contact_name} <${contact_address}>")
endif()
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "Trains GPT-2 on the CPU or on any Vulkan device")
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_INSTALL_CMAKE_PROJECTS "${CMAKE_CURRENT_BINARY_DIR};vulkan_gpt2;programs;/")
set(CPACK_COMPONENTS_ALL programs)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION science)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)  # which libraries the programs need
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS "libvulkan1")  # the Vulkan loader is opened at run time
include(CPack)
