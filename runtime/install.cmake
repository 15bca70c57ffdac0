# What `cmake --install` puts where: libejk.so, headers, tools, and a store with specs, templates and the images built so far.
set(CMAKE_INSTALL_LIBDIR lib CACHE PATH "libejk.so; it looks for its store in ../share")  # not lib/<triplet>: .. is the prefix
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

set_target_properties(ejk_shared PROPERTIES EXPORT_NAME ejk)
add_library(ejk::ejk ALIAS ejk_shared)

install(TARGETS ejk_shared EXPORT ejk LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS ejk ejk-gen RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(DIRECTORY ${CMAKE_SOURCE_DIR}/runtime/include/ejk DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${CMAKE_BINARY_DIR}/generated/include/ejk DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})

# libejk.so and the tools look for ../share/ejk/store.
set(store ${CMAKE_INSTALL_DATADIR}/ejk/store)
install(DIRECTORY ${CMAKE_SOURCE_DIR}/specs ${CMAKE_SOURCE_DIR}/templates DESTINATION ${store})
install(DIRECTORY ${CMAKE_BINARY_DIR}/store/ DESTINATION ${store} USE_SOURCE_PERMISSIONS OPTIONAL PATTERN "*.lock" EXCLUDE)

# find_package(ejk): the exported target is the whole package, it needs no other.
set(package ${CMAKE_INSTALL_LIBDIR}/cmake/ejk)
install(EXPORT ejk NAMESPACE ejk:: DESTINATION ${package} FILE ejk-config.cmake)
write_basic_package_version_file(${CMAKE_CURRENT_BINARY_DIR}/ejk-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/ejk-config-version.cmake DESTINATION ${package})
