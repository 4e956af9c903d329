"""What goes over the wire, said once: the endpoints, the forms of their replies, and the fields of a job.

The server makes its routes and their description from here, the client its calls. Nothing here imports anything that
takes time: every command starts with it.
"""
