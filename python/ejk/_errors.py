"""Exceptions: one class a status of the C API, each also the built-in class that says the same."""


class EjkError(Exception):
    """Whatever ejk refuses or fails at. The text is the library's: the thing, what was found, what was expected, what to do."""


class InputError(EjkError, ValueError):
    """Tensors, attributes, names or files are wrong (EJK_BAD_INPUT)."""


class ElementError(InputError):
    """Elements of a type that no kernel takes; who knows the kernel adds what it takes."""


class UnsupportedError(EjkError, NotImplementedError):
    """Legal, but no variant takes it; the text has each variant's reason (EJK_UNSUPPORTED)."""


class MissingImageError(EjkError, RuntimeError):
    """No binary, and none could be built; the text lists every place that was tried (EJK_MISSING_IMAGE)."""


class CompileError(EjkError, RuntimeError):
    """The compiler refused a source; the text has its words (EJK_COMPILE_FAILED)."""


class StoreError(EjkError, OSError):
    """A file or folder could not be read or written (EJK_IO)."""


class DeviceError(EjkError, RuntimeError):
    """The device or its driver refused a load or a launch (EJK_DEVICE)."""


class InternalError(EjkError, RuntimeError):
    """A fault of ejk itself, or no memory (EJK_INTERNAL)."""


OF_STATUS = {
    2: InputError,
    3: UnsupportedError,
    4: MissingImageError,
    5: CompileError,
    6: StoreError,
    7: DeviceError,
    8: InternalError,
}
