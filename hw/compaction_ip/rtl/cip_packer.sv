// Packs chunks of one to eight bytes into words, checks them, and keeps them until they are written back.
//
// Blocks follow each other without gaps. Where a block's checksum belongs the encoder leaves four bytes; meanwhile the
// next block is packed. The finisher adds the block's odd last bytes one per cycle and then fills the hole in the
// buffer, and no word from the hole on leaves the buffer before that (`committed_o`).
module cip_packer (
    input  logic                clk_i,
    input  logic                rst_i,
    input  logic                chunk_valid_i,
    output logic                chunk_ready_o,
    input  cip_pkg::chunk_t     chunk_i,
    // the buffer, as the write-back sees it; positions count words since the job began
    output cip_pkg::word_addr_t committed_o,
    input  cip_pkg::word_addr_t read_position_i,
    input  logic                read_enable_i,
    output cip_pkg::word_t      read_data_o,
    output logic                idle_o,
    output logic                full_o
);
  localparam int unsigned BufferWords = 2 ** cip_pkg::QueueDepthBits;
  localparam logic [cip_pkg::QueueDepthBits-1:0] RoomBelow = 9'd480;
  typedef logic [cip_pkg::QueueDepthBits-1:0] place_t;

  // Everything moves together, except while a hole is filled, the buffer is full or the finisher is not free.
  logic go, filling, room_q;
  assign chunk_ready_o = go;

  // ---- Step 1: the chunk turned to the lane where it continues.
  cip_pkg::lane_t fill_q, one_fill_q;
  logic one_valid_q, one_begins_q, one_ends_q, one_flush_q;
  cip_pkg::word_t one_data_q, turned;
  cip_pkg::lane_count_t one_bytes_q;
  cip_byte_rotate u_turn (.data_i(chunk_i.data), .amount_i(3'd0 - fill_q), .data_o(turned));

  // ---- Step 2: joined with the bytes before it.
  cip_pkg::word_t partial_q, joined;
  logic [cip_pkg::LaneCountWidth:0] end_lane;
  logic whole, emits;
  logic begins_held_q, ends_held_q;
  cip_pkg::lane_t begin_lane_held_q, end_lane_held_q;
  always_comb begin
    for (int j = 0; j < cip_pkg::WordBytes; j++)
      joined[8*j+:8] = cip_pkg::LaneWidth'(j) < one_fill_q ? partial_q[8*j+:8] : one_data_q[8*j+:8];
  end
  assign end_lane = {2'b0, one_fill_q} + {1'b0, one_bytes_q};
  assign whole    = end_lane >= 5'd8;
  assign emits    = one_valid_q && (whole || (one_flush_q && one_fill_q != '0));

  // ---- Step 3: a whole word; the block's first or last checked byte may lie in it.
  logic word_valid_q, word_begins_q, word_ends_q;
  cip_pkg::word_t word_q;
  cip_pkg::lane_t word_begin_lane_q, word_end_lane_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      fill_q        <= '0;
      one_valid_q   <= 1'b0;
      word_valid_q  <= 1'b0;
      begins_held_q <= 1'b0;
      ends_held_q   <= 1'b0;
    end else if (go) begin
      one_valid_q <= chunk_valid_i;
      if (chunk_valid_i) fill_q <= fill_q + chunk_i.bytes[2:0];
      word_valid_q <= emits;
      if (one_valid_q) begin
        begins_held_q <= !emits && (begins_held_q || one_begins_q);
        ends_held_q   <= !emits && (ends_held_q || one_ends_q);
      end
    end
    if (go) begin
      one_data_q   <= turned;
      one_fill_q   <= fill_q;
      one_bytes_q  <= chunk_i.bytes;
      one_begins_q <= chunk_valid_i && chunk_i.begins;
      one_ends_q   <= chunk_valid_i && chunk_i.ends;
      one_flush_q  <= chunk_valid_i && chunk_i.flush;
      if (one_valid_q) begin
        partial_q <= whole ? one_data_q : joined;
        if (one_begins_q) begin_lane_held_q <= one_fill_q;
        if (one_ends_q) end_lane_held_q <= one_fill_q;
      end
      word_q            <= joined;
      word_begins_q     <= begins_held_q || one_begins_q;
      word_ends_q       <= ends_held_q || one_ends_q;
      word_begin_lane_q <= one_begins_q ? one_fill_q : begin_lane_held_q;
      word_end_lane_q   <= one_ends_q ? one_fill_q : end_lane_held_q;
    end
  end

  // ---- The checksum over whole words. A word may end one block and begin the next.
  cip_pkg::crc_t crc_q, crc_begin, crc_from, crc_next;
  cip_pkg::word_t crc_data;
  cip_crc32c_start u_start (.lane_i(word_begin_lane_q), .state_o(crc_begin));
  cip_crc32c_word u_word (.state_i(crc_from), .data_i(crc_data), .state_o(crc_next));
  always_comb begin
    crc_from = word_begins_q ? crc_begin : crc_q;
    crc_data = word_q;
    for (int j = 0; j < cip_pkg::WordBytes; j++)
      if (word_begins_q && cip_pkg::LaneWidth'(j) < word_begin_lane_q) crc_data[8*j+:8] = 8'd0;
  end
  always_ff @(posedge clk_i) if (go && word_valid_q) crc_q <= crc_next;

  // ---- The finisher, and the hole it fills: four bytes behind the type byte, in one word or two.
  typedef enum logic [2:0] {StRest, StBytes, StMask, StFirst, StSecond} state_e;
  state_e state_q, state_d;
  cip_pkg::crc_t finish_crc_q, finish_next, masked;
  cip_pkg::word_t finish_data_q, checksum_q;
  cip_pkg::lane_count_t finish_left_q;
  cip_pkg::lane_t finish_lane_q;
  cip_pkg::word_addr_t hole_q, write_position_q, committed_q;
  logic begin_finish, second_there_q;
  cip_crc32c_byte u_byte (.state_i(finish_crc_q), .data_i(finish_data_q[7:0]), .state_o(finish_next));
  assign masked       = {~finish_crc_q[14:0], ~finish_crc_q[31:15]} + cip_pkg::CrcMask;
  assign begin_finish = word_valid_q && word_ends_q;
  assign filling      = state_q == StFirst || (state_q == StSecond && second_there_q);
  // A cycle late, which only delays: the hole is known three cycles before this counts.
  always_ff @(posedge clk_i)
    second_there_q <= write_position_q != hole_q && write_position_q != hole_q + 29'd1;

  always_comb begin
    state_d = state_q;
    unique case (state_q)
      StRest:  if (begin_finish && go) state_d = StBytes;
      StBytes: if (finish_left_q == 4'd1) state_d = StMask;
      StMask:  state_d = StFirst;
      StFirst: state_d = finish_lane_q[2] ? StSecond : StRest;
      default: if (second_there_q) state_d = StRest;
    endcase
  end
  always_ff @(posedge clk_i) begin
    if (rst_i) state_q <= StRest;
    else state_q <= state_d;
  end
  always_ff @(posedge clk_i) begin
    unique case (state_q)
      StRest: begin
        finish_crc_q  <= crc_q;
        finish_data_q <= word_q;
        finish_lane_q <= word_end_lane_q;
        finish_left_q <= {1'b0, word_end_lane_q} + 4'd1;
        hole_q        <= write_position_q;
      end
      StBytes: begin
        finish_crc_q  <= finish_next;
        finish_data_q <= {8'b0, finish_data_q[63:8]};
        finish_left_q <= finish_left_q - 4'd1;
      end
      // Byte 0 of the checksum goes to the lane behind the type byte.
      StMask: unique case (finish_lane_q[1:0])
        2'd3:    checksum_q <= {masked, masked};
        2'd0:    checksum_q <= {masked[23:0], masked, masked[31:24]};
        2'd1:    checksum_q <= {masked[15:0], masked, masked[31:16]};
        default: checksum_q <= {masked[7:0], masked, masked[31:8]};
      endcase
      default: ;
    endcase
  end

  // ---- The buffer. The packer's words and the filling of holes share the write port.
  logic [cip_pkg::WordWidth-1:0] buffer[BufferWords];
  logic [cip_pkg::WordBytes-1:0] write_lanes;
  cip_pkg::word_t write_data, read_data_q;
  place_t write_at;
  always_comb begin
    write_lanes = {cip_pkg::WordBytes{word_valid_q && go}};
    write_data  = word_q;
    write_at    = write_position_q[cip_pkg::QueueDepthBits-1:0];
    if (filling) begin
      write_data = checksum_q;
      write_at   = hole_q[cip_pkg::QueueDepthBits-1:0] + cip_pkg::QueueDepthBits'(state_q == StSecond);
      for (int j = 0; j < cip_pkg::WordBytes; j++)
        write_lanes[j] = state_q == StFirst
            ? 4'(j) > {1'b0, finish_lane_q} && 4'(j) <= {1'b0, finish_lane_q} + 4'd4
            : 4'(j) + 4'd4 <= {1'b0, finish_lane_q};
    end
  end
  for (genvar j = 0; j < cip_pkg::WordBytes; j++) begin : gen_lane
    always_ff @(posedge clk_i) if (write_lanes[j]) buffer[write_at][8*j+:8] <= write_data[8*j+:8];
  end
  always_ff @(posedge clk_i)
    if (read_enable_i) read_data_q <= buffer[read_position_i[cip_pkg::QueueDepthBits-1:0]];
  assign read_data_o = read_data_q;

  always_ff @(posedge clk_i) begin
    if (rst_i) begin
      write_position_q <= '0;
      committed_q      <= '0;
      room_q           <= 1'b1;
    end else begin
      if (go && word_valid_q) write_position_q <= write_position_q + 29'd1;
      committed_q <= state_q == StRest ? write_position_q : hole_q;
      // A word may be on its way while the comparison is made.
      room_q <= cip_pkg::QueueDepthBits'(write_position_q - read_position_i) < RoomBelow;
    end
  end

  assign go          = room_q && !filling && !(begin_finish && state_q != StRest);
  assign committed_o = committed_q;
  assign full_o      = !room_q;
  assign idle_o      = !one_valid_q && !word_valid_q && state_q == StRest && committed_q == write_position_q;
endmodule
